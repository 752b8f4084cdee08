"""The rows of an SQL query: SQLite and PostgreSQL, through their ADBC drivers."""

from pathlib import Path
from urllib.parse import quote

import polars as pl

from unexposed.errors import InputError, plain
from unexposed.late import optional

DRIVERS = {
    "sqlite": "adbc_driver_sqlite",
    "postgresql": "adbc_driver_postgresql",
    "postgres": "adbc_driver_postgresql",
}
ALL_ROWS_TYPE = str(1 << 16)  # SQLite has no types of columns: they are found in so many rows


def is_address(source: str) -> bool:
    return "://" in source


def without_password(address: str) -> str:
    """The address of a database, or a path, as it may be printed."""
    scheme, sign, rest = address.partition("://")
    if not sign:
        return plain(address)
    host, slash, path = rest.partition("/")
    return plain(f"{scheme}://{host.rpartition('@')[2]}{slash}{path.partition('?')[0]}")


def read_query(address: str, query: str | None) -> pl.DataFrame:
    """The table that a query of a database gives."""
    name, scheme = without_password(address), address.partition("://")[0]
    if scheme not in DRIVERS:
        known = "sqlite:///FILE or postgresql://USER@HOST/DATABASE"
        raise InputError(f"{name}: there is no driver for {scheme!r} here; give {known}")
    if not query:
        raise InputError(
            f"{name} is a database: give query= (--query), such as "
            "'SELECT user_id, item_id FROM clicks'"
        )
    driver = optional(DRIVERS[scheme], extra="sql")
    manager = optional("adbc_driver_manager", extra="sql")
    uri = _sqlite_file(address, name) if scheme == "sqlite" else address
    try:
        with (
            manager.AdbcDatabase(driver=driver._driver_path(), uri=uri) as database,
            manager.AdbcConnection(database) as connection,
            manager.AdbcStatement(connection) as statement,
        ):
            if scheme == "sqlite":
                statement.set_options(**{"adbc.sqlite.query.batch_rows": ALL_ROWS_TYPE})
            statement.set_sql_query(query)
            return pl.DataFrame(statement.execute_query()[0])
    except manager.Error as error:  # which may repeat the password of a malformed address
        reason = plain(" ".join(str(error).replace(address, name).split()), 200)
        raise InputError(
            f"{name}: the query failed ({reason}); check the address and the query"
        ) from None


def _sqlite_file(address: str, name: str) -> str:
    """The file as SQLite opens it for reading only; a missing one would be made."""
    path = Path(address.partition("://")[2].removeprefix("/") or ".")
    if not path.is_file():
        where = plain(Path.cwd())
        raise InputError(
            f"{name}: no such file; relative paths start at {where}, absolute ones with a fourth /"
        )
    return f"file:{quote(str(path))}?mode=ro"

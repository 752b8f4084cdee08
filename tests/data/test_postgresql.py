"""A log in PostgreSQL, read from a server that the test starts: the same clicks as from a frame."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_sources import LOG, assert_same

from reading import log, refusal

pytest.importorskip("adbc_driver_postgresql")
pytestmark = pytest.mark.slow


def program(name: str) -> Path | None:
    """A program of PostgreSQL, on the path or where packages put it."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = shutil.which(name)
    return places[-1] if places else None if found is None else Path(found)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a server of its own, which listens in a folder and to nobody else."""
    initdb, postgres = program("initdb"), program("pg_ctl")
    if initdb is None or postgres is None:
        pytest.skip("PostgreSQL is not here: neither initdb nor pg_ctl was found")
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # a socket's path must be short
    owner = None
    if os.geteuid() == 0:  # which PostgreSQL refuses to run as
        owner = "postgres" if any(u.pw_name == "postgres" for u in pwd.getpwall()) else "nobody"
        shutil.chown(folder, owner)
    run = {"user": owner, "check": True, "capture_output": True, "cwd": folder}
    data = folder / "data"
    try:
        subprocess.run([initdb, "-D", data, "-U", "reader", "-A", "trust", "-N"], **run)
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        subprocess.run(
            [postgres, "-D", data, "-o", options, "-l", folder / "log", "-w", "start"], **run
        )
        try:
            yield f"postgresql://reader:secret@/postgres?host={folder}"
        finally:
            subprocess.run([postgres, "-D", data, "-m", "immediate", "stop"], **run)
    finally:
        shutil.rmtree(folder)


ROWS = ", ".join(str(row) for row in LOG.rows())
QUERY = f"""
SELECT user_id, item_id, clicked = 1 AS clicked, plays, to_timestamp(ts) AS ts, pscore
FROM (VALUES {ROWS}) AS log (user_id, item_id, clicked, plays, ts, pscore, note)
"""


def test_a_query_of_postgresql(server):
    found = log(server, query=QUERY)
    assert_same(found, log(LOG))
    assert str(found.read).startswith("postgresql:///postgres: user = user_id")


def test_what_the_server_refuses_is_one_sentence_without_the_password(server):
    missing = 'relation "logs" does not exist'
    for query, told in (("SELECT * FROM logs", missing), ("SELEC", "syntax")):
        said = refusal(server, query=query)
        assert told in said
        assert "secret" not in said
    for host in ("localhost:1", "[::1"):  # where nobody listens, and no address at all
        said = refusal(f"postgresql://reader:secret@{host}/shop", query="SELECT 1")
        assert said.startswith(f"postgresql://{host}/shop: the query failed (")
        assert "secret" not in said

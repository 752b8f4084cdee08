"""Which column of a table is taken for what: the one given, or one recognised by its name."""

import re
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, fields
from itertools import combinations
from typing import TYPE_CHECKING, Any, cast

from unexposed.errors import InputError, did_you_mean, plain

if TYPE_CHECKING:
    import polars as pl


def _column(about: str) -> Any:
    return field(default=None, metadata={"help": about})


@dataclass(frozen=True)
class Columns:
    """What a caller says of a log: the names of its columns, and which rows are clicks.

    None leaves a column to its usual `NAMES`, and "" says that the log has no such column. The
    fields are the keywords of `read_log`, and with `help` in their metadata also the options of
    commands and the keys of files, so no other list of them is needed:

        for f in fields(Columns): option(f.name, help=f.metadata["help"])
        read_log(path, **columns.of_log())
        read_judged(path, clicks, **columns.of_judged())     # the fields named in JUDGED
        read_pairs(path, **columns.of_pairs())               # those named in PAIR
    """

    user: str | None = _column("Column of user ids.")
    item: str | None = _column("Column of item ids.")
    rating: str | None = _column("Column of ratings.")
    threshold: float | None = _column("A rating of at least this is a click. (default: 4)")
    delimiter: str | None = _column("What separates columns in a text file.")
    click: str | Iterable[str] | None = _column("Column of 0 and 1, or the events that are clicks.")
    shown: str | Iterable[str] | None = _column(
        "Events of an item that was shown, such as view,impression; below: ratings below the "
        "threshold."
    )
    event: str | None = _column("Column of events.")
    count: str | None = _column("Column of how often, such as plays.")
    time: str | None = _column("Column of times.")
    propensity: str | None = _column("Column of the logged chance that the item was shown.")
    query: str | None = _column("SQL for a log in a database: sqlite:///shop.db, postgresql://…")

    def of_log(self) -> dict[str, Any]:
        """Keywords for `read_log`."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def of_judged(self) -> dict[str, Any]:
        """Keywords for `read_judged` and `read_traffic`."""
        return {name: getattr(self, name) for name in JUDGED}

    def of_pairs(self) -> dict[str, Any]:
        """Keywords for `read_pairs`."""
        return {name: getattr(self, name) for name in PAIR}


PAIR = ("user", "item", "delimiter")  # the fields of Columns that a table of pairs needs
JUDGED = ("user", "item", "rating", "threshold", "delimiter")  # and judged pairs


@dataclass(frozen=True)
class Table:
    """The columns of a file, a folder of files or a frame, read when they are asked for."""

    name: str
    columns: list[str]
    take: "Callable[[list[str]], list[pl.Series]]"
    where: Callable[[int], str]  # the place of a row last taken, such as log.csv, line 7
    spelled: frozenset[str] = frozenset()  # columns of text: "7" is an integer only if all are
    files: "Callable[[], Iterable[Table]] | None" = None  # of a folder, one after the other

    def parts(self) -> "Iterable[Table]":
        return [self] if self.files is None else self.files()

    def refusal(self, row: int, fault: str) -> InputError:
        return InputError(f"{self.where(row)}: {fault}")


# What a column may be called, best first: lower case, without "_", "-" and spaces.
NAMES = {
    "user": "user userid uid customer customerid visitor visitorid member memberid viewer viewerid "
    "listener listenerid reader readerid "
    "reviewer reviewerid buyer buyerid shopper shopperid u",
    "item": "item itemid iid product productid sku movie movieid film filmid video videoid "
    "song songid track trackid "
    "article articleid book bookid asin i",
    "rating": "rating ratings stars overall",
    "relevance": "relevance relevant label",
    "title": "title name itemname itemtitle productname",
    "click": "click clicked isclick isclicked wasclicked label",
    "event": "event eventtype eventname action actiontype behavior behaviour behaviortype "
    "behaviourtype interaction interactiontype",
    "count": "count counts plays playcount quantity qty n",
    "time": "timestamp time datetime ts timestampms timems eventtime unixtime createdat date",
    "propensity": "propensity propensityscore pscore",
}


def recognised(columns: Sequence[str], role: str, taken: Container[str | None] = ()) -> str | None:
    """The first column that is called as one of this role usually is, and is not taken yet."""
    alike = {re.sub("[-_ ]", "", c.lower()): c for c in reversed(columns)}
    names = (name if name in columns else alike.get(name) for name in NAMES[role].split())
    return next((name for name in names if name is not None and name not in taken), None)


def named(
    table: Table,
    role: str,
    given: str | None,
    *,
    needed: bool = True,
    taken: Container[str | None] = (),
) -> str | None:
    """The column given for a role, or else one recognised; "" says that there is none."""
    if given and given in table.columns:
        return given
    found = recognised(table.columns, role, taken) if given is None else None
    if found is None and (given or needed):
        raise no_column(table, role, given)
    return found


def no_column(table: Table, role: str, given: str | None) -> InputError:
    near = plain(did_you_mean(given or role, table.columns), 200)
    what = f"{role} column" if given is None else f"column {given!r}"
    header = " in its header" if table.spelled else ""
    cure = f"{role}= (--{role})"
    if role == "relevance":
        cure = (
            "relevance=, or a rating with rating= (--rating); clicks alone can judge only in the "
            "whole catalogue (--protocol catalogue)"
        )
    cure = f"name it with {cure}"
    if given is None and header and any(map(_is_number, table.columns)):
        cure = "its first line seems to be a row: put names above it, such as user,item"
    return InputError(f"{table.name} has no {what}{header} ({near}): {cure}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def pair_names(table: Table, user: str | None, item: str | None) -> list[str]:
    names = [named(table, "user", user), named(table, "item", item)]
    refuse_twice(table, {"user": names[0], "item": names[1]})
    return cast(list[str], names)


def refuse_twice(table: Table, names: dict[str, str | None]) -> None:
    for (role, name), (other, same) in combinations(names.items(), 2):
        if name == same:
            raise InputError(
                f"{table.name}: {role}= and {other}= both name {name!r}; give two columns"
            )

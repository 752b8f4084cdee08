"""Which column of a table is taken for what: the one given, or one recognised by its name."""

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass, field, fields
from itertools import combinations
from typing import TYPE_CHECKING, Any, cast

from unexposed.errors import InputError, did_you_mean, plain

if TYPE_CHECKING:
    from unexposed.data.sources import Table


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


def named(
    table: "Table",
    role: str,
    given: str | None,
    *,
    needed: bool = True,
    taken: Container[str | None] = (),
) -> str | None:
    """The column given for a role, or else the first one recognised that is not taken yet.

    An empty name says that the table has no such column.
    """
    if given in table.columns and given:
        return given
    if given == "" and not needed:
        return None
    alike = {re.sub("[-_ ]", "", c.lower()): c for c in reversed(table.columns)}
    for name in NAMES[role].split() if given is None else ():
        found = name if name in table.columns else alike.get(name)
        if found is not None and found not in taken:
            return found
    if given is None and not needed:
        return None
    raise no_column(table, role, given)


def no_column(table: "Table", role: str, given: str | None) -> InputError:
    near = plain(did_you_mean(given or role, table.columns), 200)
    what = f"{role} column" if given is None else f"column {given!r}"
    header = " in its header" if table.has_header else ""
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


def pair_names(table: "Table", user: str | None, item: str | None) -> list[str]:
    names = [named(table, "user", user), named(table, "item", item)]
    refuse_twice(table, {"user": names[0], "item": names[1]})
    return cast(list[str], names)


def title_names(table: "Table", item: str | None, title: str | None) -> list[str]:
    """The columns of ids and of titles in a table that names items.

    `item` may be the name in another table, a log or judged pairs, and `title` is often the only
    other column: ids are in the column given if there is one of that name, else in one that is
    recognised, else in the only one left.
    """
    texts = cast(str, named(table, "title", title))
    ids = named(table, "item", item if item in table.columns else None, needed=False)
    others = [name for name in table.columns if name != texts]
    if ids is None and len(others) != 1:
        near = plain(did_you_mean(item or "item", others), 200)
        raise InputError(f"{table.name} has no column of item ids ({near}): call it item")
    return [ids or others[0], texts]


def refuse_twice(table: "Table", names: dict[str, str | None]) -> None:
    for (role, name), (other, same) in combinations(names.items(), 2):
        if name == same:
            raise InputError(
                f"{table.name}: {role}= and {other}= both name {name!r}; give two columns"
            )

"""Which column of a table is taken for what: the one given, or one recognised by its name."""

import re
from collections.abc import Container
from itertools import combinations
from typing import cast

from unexposed.data.delimited import Text
from unexposed.data.sources import Table
from unexposed.errors import InputError, did_you_mean, plain

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
    table: Table,
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


def no_column(table: Table, role: str, given: str | None) -> InputError:
    near = plain(did_you_mean(given or role, table.columns), 200)
    what = f"{role} column" if given is None else f"column {given!r}"
    header = " in its header" if isinstance(table, Text) else ""
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


def title_names(table: Table, item: str | None, title: str | None) -> list[str]:
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


def refuse_twice(table: Table, names: dict[str, str | None]) -> None:
    for (role, name), (other, same) in combinations(names.items(), 2):
        if name == same:
            raise InputError(
                f"{table.name}: {role}= and {other}= both name {name!r}; give two columns"
            )

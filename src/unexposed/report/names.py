"""What users and items are called on a page: ids and titles of strangers, as short plain text."""

from collections.abc import Mapping
from typing import Any

from unexposed.data.ids import Ids
from unexposed.errors import plain

LONGEST = 60


def short(raw: Any) -> str:
    """An id or a title on one line, its control characters spelled out, cut where it is long."""
    return plain(str(raw)[: 2 * LONGEST], LONGEST)


class Names:
    """The ids of a model, with the titles of items where there are any."""

    def __init__(self, user_ids: Ids, item_ids: Ids, titles: Mapping[int, str]) -> None:
        self._users, self._items, self._titles = user_ids, item_ids, titles

    def user(self, index: int) -> str:
        return short(self._users.values[index])

    def item(self, index: int) -> str:
        """Its title, or else its id."""
        return short(self._titles.get(index, self._items.values[index]))

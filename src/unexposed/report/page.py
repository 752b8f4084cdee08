"""Render one self-contained HTML page from a template, with all data escaped."""

import re
from collections.abc import Mapping
from typing import Any

from unexposed.data.ids import Ids
from unexposed.errors import plain
from unexposed.report.drawing import need
from unexposed.report.look import swatch

LONGEST = 60  # characters of a name


def render(template: str, **parts: Any) -> str:
    """Fill the template."""
    need("jinja2")
    import jinja2
    from markupsafe import Markup, escape

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("unexposed.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def code(text: str) -> Markup:
        """Text in which `…` is code."""
        return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))

    environment.filters["code"] = code
    environment.filters["drawn"] = Markup  # our own drawing, whose texts matplotlib has escaped
    environment.filters["swatch"] = lambda look: Markup(swatch(look))
    return environment.get_template(template).render(**parts).lstrip()


def short(raw: Any) -> str:
    """An id or a title on one line, its control characters spelled out, cut where it is long."""
    return plain(str(raw)[: 2 * LONGEST], LONGEST)


class Names:
    """Short names of a model's users and items: the title of an item where it has one."""

    def __init__(self, user_ids: Ids, item_ids: Ids, titles: Mapping[int, str]) -> None:
        self._users, self._items, self._titles = user_ids, item_ids, titles

    def user(self, index: int) -> str:
        return short(self._users.values[index])

    def item(self, index: int) -> str:
        """The item's title, or else its id."""
        return short(self._titles.get(index, self._items.values[index]))

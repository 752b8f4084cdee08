"""One self-contained HTML page from a template: what comes from outside is always escaped."""

import re
from typing import Any

from unexposed.report.drawing import need
from unexposed.report.look import INK, Look


def render(template: str, **parts: Any) -> str:
    """The page of this template, filled."""
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


def swatch(look: Look) -> str:
    """A short piece of a method's line with its marker, for a legend."""
    colour = "currentColor" if look.colour == INK else look.colour
    dashes = " ".join(f"{length * 1.8:g}" for length in look.dashes)
    array = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        '<svg width="34" height="14" viewBox="0 0 34 14" aria-hidden="true">'
        f'<g stroke="{colour}" fill="{colour}">'
        f'<path d="M1 7H33" stroke-width="2"{array}/>{_marker(look.marker)}</g></svg>'
    )


_STAR = "M17 2l1.2 3.6h3.8l-3 2.3 1.1 3.6-3.1-2.2-3.1 2.2 1.1-3.6-3-2.3h3.8z"
_MARKERS = {
    "o": '<circle cx="17" cy="7" r="3.6"/>',
    "s": '<path d="M13.6 3.6h6.8v6.8h-6.8z"/>',
    "^": '<path d="M17 2.8l4 7.4h-8z"/>',
    "v": '<path d="M17 11.2l4-7.4h-8z"/>',
    "D": '<path d="M17 2.6l4.4 4.4-4.4 4.4-4.4-4.4z"/>',
    "d": '<path d="M17 2.2l2.8 4.8-2.8 4.8-2.8-4.8z"/>',
    "h": '<path d="M17 2.6l3.8 2.2v4.4l-3.8 2.2-3.8-2.2v-4.4z"/>',
    "p": '<path d="M17 2.6l4.2 3-1.6 5h-5.2l-1.6-5z"/>',
    "P": '<path d="M15.6 3h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6v-2.8h2.6z"/>',
    "*": f'<path d="{_STAR}"/>',
    "x": '<path d="M13.6 3.6l6.8 6.8m0-6.8l-6.8 6.8" stroke-width="2"/>',
    "X": '<path d="M13.6 3.6l6.8 6.8m0-6.8l-6.8 6.8" stroke-width="3"/>',
    "+": '<path d="M17 3v8m-4-4h8" stroke-width="2"/>',
}


def _marker(name: str) -> str:
    return _MARKERS[name]

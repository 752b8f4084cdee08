"""What tests of reading share: reading in silence, refusals, and clicks by raw id."""

from pathlib import Path
from typing import Any

import pytest

from unexposed.data.clicks import Clicks
from unexposed.data.log import read_log
from unexposed.errors import InputError

# Ada clicked x twice and y once, Bob y: the log whose answer is known.
CSV = "user,item\nbob,y\nada,x\nada,y\nada,x\n"


def quiet(_: str) -> None:
    pass


def log(source: Any, **given: Any) -> Clicks:
    return read_log(source, say=quiet, **given)


def pairs(clicks: Clicks) -> dict[tuple[Any, Any], int]:
    """Raw user and item → count."""
    columns = zip(clicks.users, clicks.items, clicks.counts, strict=True)
    return {(clicks.user_ids.values[u], clicks.item_ids.values[i]): int(n) for u, i, n in columns}


def refusal(source: Any, **given: Any) -> str:
    """The refusal of a source: one printable line, which names a file."""
    with pytest.raises(InputError) as caught:
        log(source, **given)
    sentence = str(caught.value)
    assert sentence.isprintable()
    assert not isinstance(source, Path) or source.name in sentence
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return sentence

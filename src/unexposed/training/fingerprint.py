"""Fingerprints: everything that decides the outcome of a training, hashed where it is large."""

import hashlib
import json
from collections.abc import Hashable
from dataclasses import fields
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from unexposed import settings
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids, to_json
from unexposed.data.share import Share, mixed
from unexposed.errors import plain
from unexposed.training.side import Side
from unexposed.version import __version__
from unexposed.workers import Workers, summed

if TYPE_CHECKING:
    from unexposed.model.recommender import Recommender

CHUNK = 1 << 20  # rows hashed at a time


def differences(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The differences between the inputs of two trainings, in words."""
    return [
        plain(f"{what} was {then.get(what, 'none')} and is now {now.get(what, 'none')}")
        for what in {**then, **now}
        if then.get(what) != now.get(what)
    ]


def fingerprint(
    method: "Recommender",
    clicks: Clicks,
    held_out: Clicks | None,
    *,
    seed: int,
    side: Side,
    workers: Workers | None = None,
) -> dict[str, Any]:
    """Everything that decides the outcome of a training, except the engine."""
    own = settings.values(method)
    own.pop("engine", None)  # "auto" is resolved later
    return {
        "unexposed": __version__,
        "the method": method.name,
        **own,
        "the seed": seed,
        **log_fingerprint(clicks, workers),
        "the held-out clicks": "none" if held_out is None else _clicks_digest(held_out, workers),
        **side_fingerprint(side, clicks.share, workers),
    }


def log_fingerprint(clicks: Clicks, workers: Workers | None = None) -> dict[str, str]:
    """Hashes of a log's clicks and raw ids."""
    users, share = clicks.user_ids, clicks.share
    n_users = len(users) if share is None else share.n_users
    hashed = _digest(_places(clicks), _numbers(users), workers=workers)
    items = _digest(np.arange(clicks.n_items), _numbers(clicks.item_ids))
    return {
        "the log": _clicks_digest(clicks, workers),
        "the user ids": f"{n_users:,} ({hashed})",
        "the item ids": f"{clicks.n_items:,} ({items})",
    }


def side_fingerprint(
    side: Side, share: Share | None = None, workers: Workers | None = None
) -> dict[str, str]:
    """Hashes of the inputs beside the clicks, of which workers hold the rows of a share."""
    found = {}
    for name in sorted(side.given()):
        given: Any = getattr(side, name)
        if name == "user_features" or (name == "exposure" and np.ndim(given) == 2):
            rows = np.asarray(side.user_rows if name == "user_features" else given)
            places = np.arange(len(rows)) if share is None else share.users
            found[name] = _digest(places, *rows.T, workers=None if share is None else workers)
            continue
        if isinstance(given, dict):
            values = [given[key] for key in sorted(given)]
        elif isinstance(given, np.ndarray):
            values = [given]
        else:  # fields alone: `vars` would also give what a cached property has kept
            values = [getattr(given, f.name) for f in fields(given)]
        hashed = hashlib.sha256()
        for array in (value for value in values if isinstance(value, np.ndarray)):
            hashed.update(f"{array.dtype.str}{array.shape}".encode())
            hashed.update(np.ascontiguousarray(array).tobytes())
        found[name] = hashed.hexdigest()[:16]
    return found


def _clicks_digest(clicks: Clicks, workers: Workers | None) -> str:
    log = clicks.checked()
    hashed = _digest(_places(log)[log.users], log.items, log.counts, workers=workers)
    return f"{clicks.n_clicks:,} clicks ({hashed})"


def _places(clicks: Clicks) -> NDArray[np.int64]:
    """The index of each user in the whole log."""
    return np.arange(clicks.n_users) if clicks.share is None else clicks.share.users


def _numbers(ids: Ids) -> NDArray[np.int64]:
    """A number for each raw id, equal for equal ids however they are stored."""
    if ids.are_integers:
        return np.asarray(ids.values)
    values = ids.values.tolist()
    return np.fromiter((_number(raw) for raw in values), np.int64, len(ids))


def _number(raw: Hashable) -> int:
    if isinstance(raw, str):
        return crc32(raw.encode("utf-8", "surrogatepass"))
    return crc32(json.dumps(to_json(raw)).encode(), 1)


def _digest(
    places: NDArray[np.int64], *columns: NDArray[Any], workers: Workers | None = None
) -> str:
    """A hash of numbered rows: the same in any order, and however workers divide them."""
    total = np.zeros(1, dtype=np.int64)
    for start in range(0, len(places), CHUNK):
        here = slice(start, start + CHUNK)
        hashed = mixed(places[here].astype(np.uint64))
        for column in columns:
            values = np.ascontiguousarray(column[here])
            bits = values.view(f"u{values.itemsize}").astype(np.uint64)
            hashed = mixed(hashed ^ bits)
        total += hashed.view(np.int64).sum()
    return f"{int(summed(total, workers)[0]) % 2**64:016x}"

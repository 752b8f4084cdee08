"""Readers of data sets of one to five stars."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unexposed.data.clicks import Ratings
from unexposed.data.datasets.source import RatingData
from unexposed.data.ids import Ids
from unexposed.data.pairs import pair_keys
from unexposed.errors import InputError

COAT: dict[str, str | None] = {
    "train.ascii": "a87bd9e7eaf3b89f976df3f25d4aa5d5d871be8a00b58947df9e6e015559bd37",
    "test.ascii": "de6714ab105a5e0be8166be7fd313901b29f9a09c3bea307901457d1d71847e6",
    "user_item_features/user_features.ascii": (
        "d8f9531b601c54a7272602f8b21fa6cb4652cbf122e35d8615ea9645ebbf1b1f"
    ),
    "user_item_features/item_features.ascii": (
        "edea8217ec5606779b4d3bf819f7591dc63bcd5194d619e8048c2322d07630b1"
    ),
}
_TRAIN, _TEST = (f"ydata-ymusic-rating-study-v1_0-{part}.txt" for part in ("train", "test"))
YAHOO: dict[str, str | None] = {
    _TRAIN: "85538b3c4a93eafc4f0ce2d39a6cd178e32a6b615ce775b9d635f7995706269d",
    _TEST: "f27a73bef8c7ccedb17576fe2d4cc52b80c2d5fa60f13529596f003ffd0d8533",
}
ML_100K: dict[str, str | None] = {
    "u.data": "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490",
    "u.item": "553841ebc7de3a0fd0d6b62a204ea30c1e651aacfb2814c7a6584ac52f2c5701",
}
AMAZON = "ratings_CDs_and_Vinyl.csv"


def read_coat(folder: Path) -> RatingData:
    """Coat: matrices of 290 users × 300 items, 0 where a pair has no rating."""

    def ratings(name: str) -> Ratings:
        matrix = _matrix(folder / name, n_rows=290, n_columns=300)
        users, items = np.nonzero(matrix)
        return _ratings(users, items, matrix[users, items], Ids.range(290), Ids.range(300))

    features = folder / "user_item_features"
    return RatingData(
        logged=ratings("train.ascii"),
        random=ratings("test.ascii"),
        user_features=_matrix(features / "user_features.ascii", n_rows=290, n_columns=14),
        item_features=_matrix(features / "item_features.ascii", n_rows=300, n_columns=33),
    )


def read_yahoo_r3(folder: Path) -> RatingData:
    """Yahoo!R3: users 1 to 15,400 and songs 1 to 1,000, rated or not."""
    ids = Ids(np.arange(1, 15_401)), Ids(np.arange(1, 1_001))
    return RatingData(
        logged=_table(folder / _TRAIN, "\t", int, *ids),
        random=_table(folder / _TEST, "\t", int, *ids),
    )


def read_ml_100k(folder: Path) -> RatingData:
    """MovieLens 100K, with the titles of its films."""
    ids, titles = [], []
    for number, line in enumerate((folder / "u.item").read_text("latin-1").splitlines(), 1):
        item, *fields = line.split("|")
        if not item.isdecimal() or not fields:
            raise _malformed(folder / "u.item", number, line, "an item id, |, its title")
        ids.append(int(item))
        titles.append(fields[0])
    logged = _table(folder / "u.data", "\t", int, Ids(np.arange(1, 944)), Ids.of(ids))
    return RatingData(logged, item_titles=titles)


def read_amazon_cds(folder: Path) -> RatingData:
    """Amazon CDs and Vinyl: users and items in the order of the file."""
    return RatingData(_table(folder / AMAZON, ",", str))


def _table(
    path: Path,
    separator: str,
    parse_id: Callable[[str], Any],
    user_ids: Ids | None = None,
    item_ids: Ids | None = None,
) -> Ratings:
    """Ratings from the first columns of a file without a header: user, item, stars."""
    users, items, values = [], [], []
    with open(path, encoding="latin-1") as lines:
        for number, line in enumerate(lines, 1):
            try:
                user, item, text, *_ = line.split(separator)
                value = float(text)
                if not 1 <= value <= 5:
                    raise ValueError
                users.append(parse_id(user))
                items.append(parse_id(item))
                values.append(value)
            except ValueError:
                raise _malformed(path, number, line, "user, item, rating of 1 to 5") from None
    if not values:
        raise InputError(f"{path} holds no ratings")
    user_ids, item_ids = (
        Ids.of(dict.fromkeys(raw)) if ids is None else ids
        for raw, ids in ((users, user_ids), (items, item_ids))
    )
    indices = user_ids.index(users), item_ids.index(items)
    for raw, index in zip((users, items), indices, strict=True):
        if (index < 0).any():
            raise InputError(f"{path}: there is no user or item {raw[np.argmax(index < 0)]}")
    return _ratings(*indices, values, user_ids, item_ids)


def _ratings(
    users: NDArray[Any], items: NDArray[Any], values: ArrayLike, user_ids: Ids, item_ids: Ids
) -> Ratings:
    """Ratings ordered by user and item; the later line counts where a pair is rated twice."""
    # the first of the reversed lines is the last line
    keys = pair_keys(users, items, len(item_ids))[::-1]
    chosen = len(keys) - 1 - np.unique(keys, return_index=True)[1]
    users, items = users[chosen].astype(np.int32), items[chosen].astype(np.int32)
    return Ratings(users, items, np.asarray(values, np.float32)[chosen], user_ids, item_ids)


def _matrix(path: Path, *, n_rows: int, n_columns: int) -> NDArray[np.float32]:
    lines = path.read_text("latin-1").splitlines()
    if len(lines) != n_rows:
        raise InputError(f"{path}: expected {n_rows} lines, got {len(lines)}")
    matrix = np.empty((n_rows, n_columns), dtype=np.float32)
    for number, line in enumerate(lines, 1):
        try:
            matrix[number - 1] = np.array(line.split(), dtype=np.float32).reshape(n_columns)
        except ValueError:
            raise _malformed(path, number, line, f"{n_columns} numbers") from None
    return matrix


def _malformed(path: Path, number: int, line: str, expected: str) -> InputError:
    return InputError(f"{path}, line {number}: expected {expected}, got {line.strip()[:80]!r}")

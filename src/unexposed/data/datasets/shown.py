"""Readers of the data sets that say what was shown, or what users knew before.

Every row of these logs is a showing. A pair has one rating, the highest value of its rows, and is
clicked if that reaches the threshold of the data set.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Ratings, drawn
from unexposed.data.datasets.source import RatingData
from unexposed.data.ids import Ids
from unexposed.data.labelled import Impressions, KnownExposure
from unexposed.errors import InputError, did_you_mean, plain

if TYPE_CHECKING:
    import polars as pl

KUAIRAND = (
    "data/log_standard_4_08_to_4_21_pure.csv",
    "data/log_standard_4_22_to_5_08_pure.csv",
    "data/log_random_4_22_to_5_08_pure.csv",
)
KUAIREC = ("data/big_matrix.csv", "data/small_matrix.csv")
CM100K = "ratings.txt"
OPEN_BANDIT = ("bts/all/all.csv", "random/all/all.csv")

WATCHED_TWICE = 2.0  # KuaiRec: the watch ratio that its authors suggest as a like
NICE = 3.0  # CM100k: "It's nice, I enjoy listening to it", of 1 to 4
CLICKED = 1.0

_WHOLE, _REAL, _TEXT = "Int64", "Float64", "String"  # types of polars
_FEATURES = [f"user_feature_{n}" for n in range(4)]


def read_kuairand(folder: Path) -> RatingData:
    """KuaiRand-Pure: the recommender's showings, and those that chance put into the feed.

    A click is `is_click`: a click in the view of two columns, a play of some seconds in the view
    of one. What `is_rand` marks was drawn at random from a pool of 7,583 videos.
    """
    import polars as pl

    kinds = dict.fromkeys(("user_id", "video_id", "time_ms", "is_click", "is_rand"), _WHOLE)
    rows = pl.concat([_rows(folder / name, kinds) for name in KUAIRAND]).with_columns(
        user="user_id", item="video_id", value="is_click", time=pl.col("time_ms") // 1000
    )
    by_chance = pl.col("is_rand") == 1
    logged, random = (_pairs(rows.filter(c), folder, CLICKED) for c in (~by_chance, by_chance))
    return _data(logged, random, threshold=CLICKED)


def read_kuairec(folder: Path) -> RatingData:
    """KuaiRec: the big matrix as the log, and the small one, where nearly every pair was watched.

    A click is a watch ratio of at least 2, as its authors suggest: the video played twice. A row
    below that is a showing without a click, since a video plays when it is shown.
    """
    parts = []
    for name in KUAIREC:
        kinds = {"user_id": _WHOLE, "video_id": _WHOLE, "watch_ratio": _REAL, "timestamp": _REAL}
        rows = _rows(folder / name, kinds, may_lack="timestamp").with_columns(
            user="user_id", item="video_id", value="watch_ratio", time="timestamp"
        )
        parts.append(_pairs(rows, folder / name, WATCHED_TWICE))
    return _data(*parts, threshold=WATCHED_TWICE)


def read_cm100k(folder: Path) -> RatingData:
    """CM100k: ratings of tracks drawn at random, each with whether the user had heard it before.

    Half of the pairs, by lot, stand for the past: of them, those that the user had heard are the
    log. The other half is judged, heard or not, and is the truth for a learned exposure. A click
    is a rating of at least 3 of 4.
    """
    import polars as pl

    path = folder / CM100K
    with _refusing(path):
        with path.open(encoding="utf-8", errors="replace") as lines:
            header = int(not lines.readline().split("\t")[0].strip().isdecimal())
        kinds = dict.fromkeys(("user", "item", "value", "known"), _WHOLE)
        rows = pl.read_csv(
            path, separator="\t", has_header=False, skip_rows=header, schema=_types(kinds)
        )
    good = pl.col("value").is_between(1, 4) & pl.col("known").is_in([0, 1])
    for number, *row in rows.with_row_index().filter(~good.fill_null(False)).rows()[:1]:
        raise InputError(
            f"{path}, line {number + header + 1}: expected user, track, rating of 1 to 4, known of "
            f"0 or 1, got {', '.join(map(str, row))}"
        )
    pairs = rows.group_by("user", "item").agg(pl.col("value", "known").last()).sort("user", "item")
    ids, users, items = _indexed(pairs)
    values = pairs["value"].to_numpy().astype(np.float32)
    rated = Ratings(users, items, values, *ids, threshold=NICE)
    heard = pairs["known"].to_numpy() == 1
    judged = drawn(len(rated), fraction=0.5, seed=0)
    known = KnownExposure(users[judged], items[judged], heard[judged], *ids)
    return RatingData(rated.pick(heard & ~judged), rated.pick(judged), exposure=known)


def read_open_bandit(folder: Path) -> RatingData:
    """Open Bandit, campaign "all": Thompson sampling as the log, the uniform arm as random traffic.

    The data set names no people, so a user is a combination of the four user features: a group of
    people alike. A pair is clicked if one of its showings was, in any of the three positions. Its
    propensity is the mean chance that the policy gave to the item in that position.
    """
    import polars as pl

    kinds = {"item_id": _WHOLE, "click": _WHOLE, "propensity_score": _REAL, "timestamp": _TEXT}
    seconds = (
        pl.col("timestamp").str.slice(0, 19).str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False)
    ).dt.epoch("s")
    parts = []
    for name in OPEN_BANDIT:
        rows = _rows(
            folder / name, kinds | dict.fromkeys(_FEATURES, _TEXT), may_lack="timestamp"
        ).with_columns(
            user=pl.concat_str(_FEATURES, separator="|"),
            item="item_id",
            value="click",
            time=seconds,
            propensity="propensity_score",
        )
        parts.append(_pairs(rows, folder / name, CLICKED))
    return _data(*parts, threshold=CLICKED)


# From rows to pairs


def _types(kinds: dict[str, str]) -> dict[str, Any]:
    import polars as pl

    return {name: getattr(pl, kind) for name, kind in kinds.items()}


def _rows(path: Path, kinds: dict[str, str], *, may_lack: str = "") -> "pl.LazyFrame":
    """These columns of a CSV file with a header; one that may be lacking is then empty."""
    import polars as pl

    with _refusing(path):
        rows = pl.scan_csv(path.absolute(), schema_overrides=_types(kinds), glob=False)
        there = rows.collect_schema().names()
    missing = [name for name in kinds if name not in there]
    for name in missing:
        if name != may_lack:
            raise InputError(f"{path} has no column {name!r}; {did_you_mean(name, there)}")
    empty = [pl.lit(None, _types(kinds)[name]).alias(name) for name in missing]
    return rows.with_columns(empty).select(list(kinds))


def _pairs(rows: "pl.LazyFrame", path: Path, threshold: float) -> "pl.DataFrame":
    """One row for each pair: highest value, times shown and clicked, last time, propensity."""
    import polars as pl

    clicked = pl.col("value") >= threshold
    # of the last click, or else of the last showing
    last = pl.coalesce(pl.col("time").filter(clicked).max(), pl.col("time").max())
    good = pl.col("value").is_in([0, 1]) if threshold == CLICKED else pl.col("value") >= 0
    columns = {
        "value": pl.col("value").max(),
        "shown": pl.len(),
        "clicked": clicked.sum(),
        "time": pl.when(pl.col("time").null_count() == 0).then(last),
        "wrong": (~good.fill_null(False)).sum(),
    }
    if "propensity" in rows.collect_schema().names():
        columns["propensity"] = pl.col("propensity").mean()
    with _refusing(path):
        pairs = rows.group_by("user", "item").agg(**columns).collect(engine="streaming")
    whole = pairs.drop_nulls(["user", "item", *{"propensity"}.intersection(columns)])
    wrong = int(pairs["wrong"].sum() + (len(pairs) - len(whole)))
    if wrong or pairs.is_empty():
        what = "0 or 1" if threshold == CLICKED else "a number of at least 0"
        raise InputError(
            f"{path}: {wrong:,} rows lack a user, an item or a value of {what}; restore the file"
            if wrong
            else f"{path} holds no row of one of its parts; restore the file"
        )
    return pairs


def _data(logged: "pl.DataFrame", random: "pl.DataFrame", *, threshold: float) -> RatingData:
    import polars as pl

    both = pl.concat([logged.select("user", "item"), random.select("user", "item")])
    ids, users, items = _indexed(both)
    cut = len(logged)
    return RatingData(
        _ratings(logged, users[:cut], items[:cut], ids, threshold),
        _ratings(random, users[cut:], items[cut:], ids, threshold),
    )


def _indexed(pairs: "pl.DataFrame") -> tuple[tuple[Ids, Ids], NDArray[np.int32], NDArray[np.int32]]:
    """Ids of all users and items in ascending order, and the index of each pair's."""
    ids, indices = [], []
    for name in ("user", "item"):
        values, index = np.unique(pairs[name].to_numpy(), return_inverse=True)
        ids.append(Ids(values) if values.dtype == np.int64 else Ids.of(values.tolist()))
        indices.append(index.astype(np.int32))
    return (ids[0], ids[1]), indices[0], indices[1]


def _ratings(
    pairs: "pl.DataFrame",
    users: NDArray[np.int32],
    items: NDArray[np.int32],
    ids: tuple[Ids, Ids],
    threshold: float,
) -> Ratings:
    order = np.lexsort((items, users))
    pairs, users, items = pairs[order], users[order], items[order]
    chance = pairs.get_column("propensity", default=None)
    shown = Impressions(
        users,
        items,
        pairs["shown"].to_numpy().astype(np.int32),
        pairs["clicked"].to_numpy().astype(np.int32),
        *ids,
        None if chance is None else chance.to_numpy().astype(np.float32),
    )
    times = pairs["time"]
    return Ratings(
        users,
        items,
        pairs["value"].to_numpy().astype(np.float32),
        *ids,
        threshold=threshold,
        times=None if times.null_count() else times.to_numpy().astype(np.int64),
        shown=shown,
    )


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Turn an error of polars about a file into one sentence."""
    import polars as pl

    try:
        yield
    except pl.exceptions.PolarsError as error:
        reason = plain(str(error).partition("\n")[0], 120)
        raise InputError(f"{path} cannot be read ({reason}): restore the original file") from None

"""The data sets of the field, read from their original files."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unexposed.data.clicks import pair_keys
from unexposed.data.fetch import download as fetch
from unexposed.data.fetch import fault as fault
from unexposed.data.ids import Ids
from unexposed.data.rating_data import HOLDS
from unexposed.data.rating_data import Dataset as Dataset
from unexposed.data.rating_data import RatingData as RatingData
from unexposed.data.ratings import Ratings
from unexposed.data.shown_sets import SHOWN_SETS
from unexposed.errors import InputError, did_you_mean

Folder = str | os.PathLike[str]

_YAHOO = "ydata-ymusic-rating-study-v1_0-"
_WEBSCOPE = "https://webscope.sandbox.yahoo.com/catalog.php?datatype=r"
_AMAZON = "ratings_CDs_and_Vinyl.csv"


def load(name: str, *, data_dir: Folder | None = None, download: bool = True) -> RatingData:
    """The data set of this name, downloaded first where that is needed and possible."""
    dataset = _known(name)
    folder = locate(name, data_dir)
    if folder is None:
        if download and dataset.download:
            return fetch(dataset, dataset.download, _cache() / dataset.folder)
        raise InputError(f"{dataset.title} is not here: {dataset.absent}")
    if wrong := fault(dataset, folder):
        again = " to have it downloaded again" if dataset.download else ""
        raise InputError(f"{folder}: {wrong}; restore that file, or remove the folder{again}")
    return dataset.read(folder)


def locate(name: str, data_dir: Folder | None = None) -> Path | None:
    """The folder of a data set: in `data_dir`, else $UNEXPOSED_DATA, else the user's cache."""
    dataset = _known(name)
    places = [_cache()]
    if from_environment := os.environ.get("UNEXPOSED_DATA"):
        places.insert(0, Path(from_environment).expanduser())
    if data_dir is not None:
        given = Path(data_dir).expanduser()
        if not given.is_dir():
            raise InputError(f"the data folder {given} does not exist")
        places.insert(0, given)
    return next((p / dataset.folder for p in places if (p / dataset.folder).is_dir()), None)


def status(data_dir: Folder | None = None) -> list[dict[str, Any]]:
    """A row for each data set: what it holds, its source and terms, its folder if it is here."""
    rows = []
    for name, dataset in DATASETS.items():
        folder = locate(name, data_dir)
        rows.append(
            {
                "name": name,
                "title": dataset.title,
                "present": str(folder) if folder else None,
                "holds": [part for part in HOLDS if part in dataset.holds],
                "clicks": dataset.clicks,
                "homepage": dataset.homepage,
                "terms": dataset.terms,
                "download": dataset.download,
                "archive_md5": dataset.archive_md5,
                "sha256": "\n".join(
                    f"{digest or 'unverified: none is published'}  {file}"
                    for file, digest in dataset.files.items()
                ),
                "absent": dataset.absent,
            }
        )
    return rows


def _known(name: str) -> Dataset:
    if name not in DATASETS:
        raise InputError(f"no data set {name!r}; {did_you_mean(name, DATASETS)}")
    return DATASETS[name]


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unexposed"


def _read_coat(folder: Path) -> RatingData:
    def ratings(name: str) -> Ratings:
        matrix = _read_matrix(folder / name, n_rows=290, n_columns=300)
        users, items = np.nonzero(matrix)
        return _ratings(users, items, matrix[users, items], Ids.range(290), Ids.range(300))

    features = folder / "user_item_features"
    return RatingData(
        logged=ratings("train.ascii"),
        random=ratings("test.ascii"),
        user_features=_read_matrix(features / "user_features.ascii", n_rows=290, n_columns=14),
        item_features=_read_matrix(features / "item_features.ascii", n_rows=300, n_columns=33),
    )


def _read_yahoo_r3(folder: Path) -> RatingData:
    ids = _numbers_to(15_400), _numbers_to(1_000)
    return RatingData(
        logged=_read_table(folder / (_YAHOO + "train.txt"), *ids),
        random=_read_table(folder / (_YAHOO + "test.txt"), *ids),
    )


def _read_ml_100k(folder: Path) -> RatingData:
    ids, titles = [], []
    for number, line in enumerate((folder / "u.item").read_text("latin-1").splitlines(), 1):
        item, *fields = line.split("|")
        if not item.isdecimal() or not fields:
            raise _malformed(folder / "u.item", number, line, "an item id, |, its title")
        ids.append(int(item))
        titles.append(fields[0])
    logged = _read_table(folder / "u.data", _numbers_to(943), Ids.of(ids))
    return RatingData(logged, item_titles=titles)


def _read_amazon_cds(folder: Path) -> RatingData:
    users, items, values = _read_lines(folder / _AMAZON, ",", parse_id=str)
    user_ids, item_ids = Ids.of(dict.fromkeys(users)), Ids.of(dict.fromkeys(items))
    return RatingData(
        _ratings(user_ids.index(users), item_ids.index(items), values, user_ids, item_ids)
    )


def _numbers_to(n: int) -> Ids:
    return Ids(np.arange(1, n + 1))


def _read_table(path: Path, user_ids: Ids, item_ids: Ids) -> Ratings:
    """Tab-separated ratings of users and items that are known by number."""
    try:
        table = np.loadtxt(path, np.int64, delimiter="\t", comments=None, usecols=(0, 1, 2))
        users, items, values = table.reshape(-1, 3).T
        if values.min() < 1 or values.max() > 5:
            raise ValueError
    except ValueError:  # a slower look finds the line
        users, items, values = map(np.array, _read_lines(path, "\t", parse_id=int))
    indices = user_ids.index(users), item_ids.index(items)
    for raw, index in zip((users, items), indices, strict=True):
        if (index < 0).any():
            raise InputError(f"{path}: there is no user or item {raw[index < 0][0]}")
    return _ratings(*indices, values, user_ids, item_ids)


def _read_lines(
    path: Path, separator: str, *, parse_id: Callable[[str], Any]
) -> tuple[list[Any], list[Any], list[float]]:
    """Users, items and ratings of 1 to 5: the first columns of a file without a header."""
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
    if not users:
        raise InputError(f"{path} holds no ratings")
    return users, items, values


def _ratings(
    users: NDArray[Any], items: NDArray[Any], values: ArrayLike, user_ids: Ids, item_ids: Ids
) -> Ratings:
    """Ratings ordered by user and item; the later line counts where a pair is rated twice."""
    # the first of the reversed lines is the last line
    keys = pair_keys(users, items, len(item_ids))[::-1]
    chosen = len(keys) - 1 - np.unique(keys, return_index=True)[1]
    users, items = users[chosen].astype(np.int32), items[chosen].astype(np.int32)
    return Ratings(users, items, np.asarray(values, np.float32)[chosen], user_ids, item_ids)


def _malformed(path: Path, number: int, line: str, expected: str) -> InputError:
    return InputError(f"{path}, line {number}: expected {expected}, got {line.strip()[:80]!r}")


def _read_matrix(path: Path, *, n_rows: int, n_columns: int) -> NDArray[np.float32]:
    matrix = np.empty((n_rows, n_columns), dtype=np.float32)
    lines = path.read_text("latin-1").splitlines()
    if len(lines) != n_rows:
        raise InputError(f"{path}: expected {n_rows} lines, got {len(lines)}")
    for number, line in enumerate(lines, 1):
        try:
            matrix[number - 1] = np.array(line.split(), dtype=np.float32).reshape(n_columns)
        except ValueError:
            raise _malformed(path, number, line, f"{n_columns} numbers") from None
    return matrix


DATASETS = {
    "coat": Dataset(
        title="Coat",
        folder="coat",
        files={
            "train.ascii": "a87bd9e7eaf3b89f976df3f25d4aa5d5d871be8a00b58947df9e6e015559bd37",
            "test.ascii": "de6714ab105a5e0be8166be7fd313901b29f9a09c3bea307901457d1d71847e6",
            "user_item_features/user_features.ascii": (
                "d8f9531b601c54a7272602f8b21fa6cb4652cbf122e35d8615ea9645ebbf1b1f"
            ),
            "user_item_features/item_features.ascii": (
                "edea8217ec5606779b4d3bf819f7591dc63bcd5194d619e8048c2322d07630b1"
            ),
        },
        homepage="https://www.cs.cornell.edu/~schnabts/mnar/",
        download="https://www.cs.cornell.edu/~schnabts/mnar/coat.zip",
        terms="for research; cite Schnabel et al., ICML 2016",
        absent="allow the download, or put the files of coat.zip into $UNEXPOSED_DATA/coat",
        read=_read_coat,
        holds=frozenset({"random"}),
    ),
    "yahoo_r3": Dataset(
        title="Yahoo!R3",
        folder="yahoo_r3",
        files={
            _YAHOO
            + "train.txt": "85538b3c4a93eafc4f0ce2d39a6cd178e32a6b615ce775b9d635f7995706269d",
            _YAHOO + "test.txt": "f27a73bef8c7ccedb17576fe2d4cc52b80c2d5fa60f13529596f003ffd0d8533",
        },
        homepage=_WEBSCOPE,
        download=None,
        terms="Yahoo! Webscope licence: non-commercial research, on request, not to be passed on",
        absent=f"ask for R3 at {_WEBSCOPE} and put its two files into $UNEXPOSED_DATA/yahoo_r3",
        read=_read_yahoo_r3,
        holds=frozenset({"random"}),
    ),
    "ml_100k": Dataset(
        title="MovieLens 100K",
        folder="ml-100k",
        files={
            "u.data": "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490",
            "u.item": "553841ebc7de3a0fd0d6b62a204ea30c1e651aacfb2814c7a6584ac52f2c5701",
        },
        homepage="https://grouplens.org/datasets/movielens/100k/",
        download="https://files.grouplens.org/datasets/movielens/ml-100k.zip",
        terms="for research; not to be passed on or used commercially without permission",
        absent="allow the download, or put the files of ml-100k.zip into $UNEXPOSED_DATA/ml-100k",
        read=_read_ml_100k,
    ),
    "amazon_cds": Dataset(
        title="Amazon CDs and Vinyl",
        folder="amazon_cds",
        files={_AMAZON: None},
        homepage="https://snap.stanford.edu/data/amazon/",
        download=f"https://snap.stanford.edu/data/amazon/productGraph/categoryFiles/{_AMAZON}",
        terms="for research; cite McAuley et al., SIGIR 2015",
        absent=f"allow the download, or put {_AMAZON} into $UNEXPOSED_DATA/amazon_cds",
        read=_read_amazon_cds,
    ),
    **SHOWN_SETS,
}

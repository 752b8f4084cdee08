"""The data sets of the field, read from their original files. A new one is an entry, and a reader.

DATASETS ─▶ locate ─▶ (download) ─▶ read ─▶ RatingData
"""

import os
from pathlib import Path
from typing import Any

from unexposed.data.datasets import shown, stars
from unexposed.data.datasets.source import HOLDS, Dataset, RatingData, fault, fetch
from unexposed.errors import InputError, did_you_mean

__all__ = ["DATASETS", "HOLDS", "Dataset", "Folder", "RatingData", "fault", "load", "locate"]

Folder = str | os.PathLike[str]

_WEBSCOPE = "https://webscope.sandbox.yahoo.com/catalog.php?datatype=r"
_SNAP = "https://snap.stanford.edu/data/amazon/productGraph/categoryFiles/"
_CM100K = "http://ir.ii.uam.es/cm100k"
_ZOZO = "https://research.zozo.com/"

DATASETS = {
    "coat": Dataset(
        title="Coat",
        read=stars.read_coat,
        folder="coat",
        files=stars.COAT,
        homepage="https://www.cs.cornell.edu/~schnabts/mnar/",
        terms="for research; cite Schnabel et al., ICML 2016",
        download="https://www.cs.cornell.edu/~schnabts/mnar/coat.zip",
        holds=frozenset({"random"}),
    ),
    "yahoo_r3": Dataset(
        title="Yahoo!R3",
        read=stars.read_yahoo_r3,
        folder="yahoo_r3",
        files=stars.YAHOO,
        homepage=_WEBSCOPE,
        terms="Yahoo! Webscope licence: non-commercial research, on request, not to be passed on",
        by_hand=f"ask for R3 at {_WEBSCOPE} and",
        holds=frozenset({"random"}),
    ),
    "ml_100k": Dataset(
        title="MovieLens 100K",
        read=stars.read_ml_100k,
        folder="ml-100k",
        files=stars.ML_100K,
        homepage="https://grouplens.org/datasets/movielens/100k/",
        terms="for research; not to be passed on or used commercially without permission",
        download="https://files.grouplens.org/datasets/movielens/ml-100k.zip",
    ),
    "amazon_cds": Dataset(
        title="Amazon CDs and Vinyl",
        read=stars.read_amazon_cds,
        folder="amazon_cds",
        files={stars.AMAZON: None},
        homepage="https://snap.stanford.edu/data/amazon/",
        terms="for research; cite McAuley et al., SIGIR 2015",
        download=_SNAP + stars.AMAZON,
    ),
    "kuairand_pure": Dataset(
        title="KuaiRand-Pure",
        read=shown.read_kuairand,
        folder="KuaiRand-Pure",
        files=dict.fromkeys(shown.KUAIRAND),
        homepage="https://kuairand.com",
        terms="CC BY-SA 4.0; cite Gao et al., CIKM 2022",
        download="https://zenodo.org/records/10439422/files/KuaiRand-Pure.tar.gz",
        holds=frozenset({"impressions", "random"}),
        clicks="is_click = 1",
        archive_md5="0820331067a3784d9691136f772b35a7",
    ),
    "kuairec": Dataset(
        title="KuaiRec",
        read=shown.read_kuairec,
        folder="KuaiRec",
        files=dict.fromkeys(shown.KUAIREC),
        homepage="https://kuairec.com",
        terms="CC BY-SA 4.0; cite Gao et al., CIKM 2022",
        by_hand="get https://zenodo.org/records/18164998/files/KuaiRec.zip (430 MB) and",
        holds=frozenset({"impressions", "random"}),
        clicks="a watch ratio of at least 2",
        archive_md5="261550d472c48eff4990fb13c0e5bcf7",
    ),
    "cm100k": Dataset(
        title="CM100k",
        read=shown.read_cm100k,
        folder="cm100k",
        files={shown.CM100K: None},
        homepage=_CM100K,
        terms="no licence is stated; cite Cañamares and Castells, SIGIR 2018",
        by_hand=f"get it from {_CM100K} and",
        holds=frozenset({"random", "exposure"}),
        clicks="a rating of at least 3 of 4",
    ),
    "open_bandit": Dataset(
        title="Open Bandit",
        read=shown.read_open_bandit,
        folder="open_bandit_dataset",
        files=dict.fromkeys(shown.OPEN_BANDIT),
        homepage=f"{_ZOZO}data.html",
        terms="CC BY 4.0; cite Saito et al., NeurIPS 2021",
        by_hand=f"get {_ZOZO}data_release/open_bandit_dataset.zip (410 MB, 11 GB unpacked) and",
        holds=frozenset({"impressions", "random", "propensities"}),
        clicks="click = 1",
    ),
}


def load(name: str, *, data_dir: Folder | None = None, download: bool = True) -> RatingData:
    """The data set of this name, downloaded first where that is needed and possible."""
    dataset = _entry(name)
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
    folder = _entry(name).folder
    if data_dir is not None and not Path(data_dir).expanduser().is_dir():
        raise InputError(f"the data folder {Path(data_dir).expanduser()} does not exist")
    places = [data_dir, os.environ.get("UNEXPOSED_DATA"), _cache()]
    folders = (Path(place).expanduser() / folder for place in places if place)
    return next((path for path in folders if path.is_dir()), None)


def status(data_dir: Folder | None = None) -> list[dict[str, Any]]:
    """A row for each data set: what it holds, its source and terms, its folder if it is here."""
    return [
        {
            "name": name,
            "title": dataset.title,
            "present": str(folder) if (folder := locate(name, data_dir)) else None,
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
        for name, dataset in DATASETS.items()
    ]


def _entry(name: str) -> Dataset:
    if name not in DATASETS:
        raise InputError(f"no data set {name!r}; {did_you_mean(name, DATASETS)}")
    return DATASETS[name]


def _cache() -> Path:
    import platformdirs

    return platformdirs.user_cache_path("unexposed")

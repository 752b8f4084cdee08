"""A data set of the field: where it comes from, its download, and the parts that its files hold.

A download is whole and checked against what its publisher says, or it is not there at all.
"""

import hashlib
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from unexposed.cards import Card, HasCard
from unexposed.data.clicks import Ratings
from unexposed.data.labelled import KnownExposure
from unexposed.errors import InputError

HOLDS = {  # what a data set may hold beside clicks → what it is
    "impressions": "what was shown, clicked or not",
    "random": "pairs that nobody chose, with labels: shown at random, or all of them",
    "propensities": "the logged chance of each showing",
    "exposure": "whether users knew the item before: a truth for learned exposure",
}


@dataclass(frozen=True, eq=False)
class RatingData:
    """The parts of a data set, over the same users and items."""

    logged: Ratings  # of items that users chose to rate, or were led to
    random: Ratings | None = None  # of items shown uniformly at random, or of all items
    user_features: NDArray[np.float32] | None = None
    item_features: NDArray[np.float32] | None = None
    item_titles: list[str] | None = None
    exposure: KnownExposure | None = None  # of pairs beside the logged ones

    def holds(self) -> set[str]:
        """Names of `HOLDS`."""
        shown = self.logged.shown
        parts = {
            "impressions": shown,
            "random": self.random,
            "propensities": shown and shown.propensity,
            "exposure": self.exposure,
        }
        return {name for name, part in parts.items() if part is not None}


@dataclass(frozen=True, eq=False)
class Dataset(HasCard):
    """The source of a data set, and the reader of its files.

    A file whose SHA-256 is None has no published checksum and is accepted as it comes. A download
    records its checksum beside the file, and the file must keep it.
    """

    title: str
    read: Callable[[Path], RatingData]
    folder: str
    files: dict[str, str | None]  # path inside the folder → SHA-256
    homepage: str
    terms: str
    download: str | None = None  # an archive (.zip, .tar.gz), or the only file itself
    by_hand: str = "allow the download, or"  # what to do where the files are missing
    holds: frozenset[str] = frozenset()  # names of `HOLDS`
    clicks: str = "a rating of at least 4"  # what counts as a click
    archive_md5: str | None = None  # as its publisher gives it

    @property
    def absent(self) -> str:
        """How to get the data set."""
        return f"{self.by_hand} put its files into $UNEXPOSED_DATA/{self.folder}"

    def __repr__(self) -> str:
        return f"Dataset({self.title!r})"

    def card(self) -> Card:
        """What it holds, and its terms."""
        facts = {"clicks": self.clicks, "holds": ", ".join(sorted(self.holds)) or "clicks alone"}
        return Card(self.title, facts | {"terms": self.terms})


RECORD = "SHA256SUMS"  # of a download whose publisher gives no checksums
_BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error)  # what a damaged archive raises


def fault(dataset: Dataset, folder: Path) -> str | None:
    """What is wrong with the first wrong file, or None."""
    recorded = {}
    if (folder / RECORD).is_file():
        lines = (folder / RECORD).read_text(encoding="utf-8", errors="replace").splitlines()
        recorded = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    for name, published in dataset.files.items():
        if not (folder / name).is_file():
            return f"{name} is missing"
        if expected := published or recorded.get(name):
            which = "the original" if published else "what was downloaded"
            if wrong := _differs(folder / name, "sha256", expected):
                return f"{name} is not {which}: SHA-256 {wrong}"
    return None


def fetch(dataset: Dataset, url: str, target: Path) -> RatingData:
    """Download a data set into a folder, which appears whole and readable, or not at all."""
    import pooch  # here: it is slow to import, and needed only for a download

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".download-", dir=target.parent) as scratch:
            archive, unpacked = Path(scratch, "archive"), Path(scratch, "unpacked")
            pooch.HTTPDownloader(chunk_size=1 << 20)(url, str(archive), None)
            if dataset.archive_md5 and (wrong := _differs(archive, "md5", dataset.archive_md5)):
                raise InputError(f"it is not the original: MD5 {wrong}")
            folder = _unpack(dataset, archive, unpacked, ending=Path(url).suffix)
            if wrong := fault(dataset, folder):
                raise InputError(wrong)
            data = dataset.read(folder)
            unpublished = [name for name, digest in dataset.files.items() if digest is None]
            if unpublished:
                sums = "".join(f"{_digest(folder / n, 'sha256')}  {n}\n" for n in unpublished)
                (folder / RECORD).write_text(sums, encoding="utf-8")
            try:
                folder.rename(target)
            except OSError:
                if not target.is_dir():  # else another process was faster
                    raise
            return data
    except (OSError, EOFError, InputError, *_BROKEN) as error:
        raise InputError(
            f"cannot download {dataset.title} from {url}: {_reason(error)}; "
            f"try again later, or put its files into {target}"
        ) from error


def _differs(path: Path, algorithm: str, expected: str) -> str | None:
    digest = _digest(path, algorithm)
    return None if digest == expected else f"{digest[:12]}…, expected {expected[:12]}…"


def _digest(path: Path, algorithm: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _unpack(dataset: Dataset, archive: Path, unpacked: Path, *, ending: str) -> Path:
    """Unpack, and find the folder with the files: the archive may hold them in a subfolder."""
    if ending == ".zip":
        with zipfile.ZipFile(archive) as parts:
            parts.extractall(unpacked)
    elif ending == ".gz":
        _unpack_tar(archive, unpacked)
    else:
        (name,) = dataset.files
        (unpacked / name).parent.mkdir(parents=True)
        archive.rename(unpacked / name)
    folders = [unpacked, *sorted(p for p in unpacked.rglob("*") if p.is_dir())]
    complete = (f for f in folders if all((f / name).is_file() for name in dataset.files))
    return next(complete, unpacked)


def _unpack_tar(archive: Path, unpacked: Path) -> None:
    """Unpack the plain files of a tar archive, none of them outside the folder."""
    with tarfile.open(archive, "r:gz") as parts:
        for member in filter(tarfile.TarInfo.isfile, parts):
            path = (unpacked / member.name).resolve()
            content = parts.extractfile(member)
            if content is None or not path.is_relative_to(unpacked.resolve()):
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            with content, path.open("wb") as file:
                shutil.copyfileobj(content, file)


def _reason(error: Exception) -> str:
    # errors of requests are OSErrors whose text is a paragraph
    if (response := getattr(error, "response", None)) is not None:
        response.close()  # pooch leaves it open
        return f"the server answered {response.status_code} {response.reason}"
    if isinstance(error, OSError):
        return error.strerror or "no connection, or it broke off"
    return str(error)

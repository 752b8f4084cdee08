"""Downloads of data sets: whole, checked against what their publishers say, or not at all."""

import hashlib
import shutil
import tarfile
import zipfile
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

from unexposed.data.datasets.dataset import Dataset, RatingData
from unexposed.errors import InputError

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

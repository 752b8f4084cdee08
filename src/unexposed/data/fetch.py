"""Downloads of data sets: whole, checked against what their publishers say, or not at all."""

import hashlib
import shutil
import tarfile
import zipfile
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

from unexposed.data.rating_data import Dataset, RatingData
from unexposed.errors import InputError

RECORD = "SHA256SUMS"  # of a download whose publisher gives no checksums
_BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error)  # what a damaged archive raises


def fault(dataset: Dataset, folder: Path) -> str | None:
    """What is wrong with the first wrong file, or None."""
    recorded = _recorded(folder)
    for name, known in dataset.files.items():
        if not (folder / name).is_file():
            return f"{name} is missing"
        expected = known or recorded.get(name)
        if expected is None:
            continue
        found = _sha256(folder / name)
        if found != expected:
            which = "the original" if known else "what was downloaded"
            return f"{name} is not {which}: SHA-256 {found[:12]}…, expected {expected[:12]}…"
    return None


def _recorded(folder: Path) -> dict[str, str]:
    """The SHA-256 that a download recorded for each file without a published one."""
    try:
        lines = (folder / RECORD).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def _record(dataset: Dataset, folder: Path) -> None:
    unknown = [name for name, digest in dataset.files.items() if digest is None]
    text = "".join(f"{_sha256(folder / name)}  {name}\n" for name in unknown)
    if text:
        (folder / RECORD).write_text(text, encoding="utf-8")


def _sha256(path: Path) -> str:
    return _digest(path, "sha256")


def _digest(path: Path, algorithm: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def download(dataset: Dataset, url: str, target: Path) -> RatingData:
    """Download a data set into a folder, which appears whole and readable, or not at all."""
    import pooch  # here: it is slow to import, and needed only for a download

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".download-", dir=target.parent) as scratch:
            fetched, unpacked = Path(scratch, "fetched"), Path(scratch, "unpacked")
            pooch.HTTPDownloader(chunk_size=1 << 20)(url, str(fetched), None)
            if wrong := _wrong_archive(dataset, fetched):
                raise InputError(wrong)
            folder = _unpack(dataset, fetched, unpacked, ending=Path(url).suffix)
            if wrong := fault(dataset, folder):
                raise InputError(wrong)
            data = dataset.read(folder)
            _record(dataset, folder)
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


def _wrong_archive(dataset: Dataset, fetched: Path) -> str | None:
    if dataset.archive_md5 is None:
        return None
    found = _digest(fetched, "md5")
    if found == dataset.archive_md5:
        return None
    return f"it is not the original: MD5 {found[:12]}…, expected {dataset.archive_md5[:12]}…"


def _unpack(dataset: Dataset, fetched: Path, unpacked: Path, *, ending: str) -> Path:
    """Unpack, and find the folder with the files: the archive may hold them in a subfolder."""
    if ending not in (".zip", ".gz"):
        (name,) = dataset.files
        (unpacked / name).parent.mkdir(parents=True)
        fetched.rename(unpacked / name)
        return unpacked
    if ending == ".zip":
        with zipfile.ZipFile(fetched) as archive:
            archive.extractall(unpacked)
    else:
        _unpack_tar(fetched, unpacked)
    folders = [unpacked, *sorted(p for p in unpacked.rglob("*") if p.is_dir())]
    complete = (f for f in folders if all((f / name).is_file() for name in dataset.files))
    return next(complete, unpacked)


def _unpack_tar(fetched: Path, unpacked: Path) -> None:
    """Unpack the plain files of a tar archive, none of them outside the folder."""
    with tarfile.open(fetched, "r:gz") as archive:
        for member in filter(tarfile.TarInfo.isfile, archive):
            path = (unpacked / member.name).resolve()
            content = archive.extractfile(member)
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

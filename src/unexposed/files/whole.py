"""Write a file or a folder whole or not at all: beside its place first, then swapped in."""

import contextlib
import ctypes
import errno
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Set
from pathlib import Path

from unexposed.errors import InputError

PREFIX = ".unexposed-saving-"
ATTEMPTS = 100  # at a place that other processes write to as well
EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS
HERE = -100  # AT_FDCWD
UNABLE = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Have `write` fill a new file, then move it into place: readers see the old file or the new.

    A symbolic link stays one, and the file it leads to keeps its mode. A pipe or a device is
    written to directly.
    """
    try:
        path = Path(os.path.realpath(path))
        is_stream = path.exists() and not path.is_file()
        with workspace(Path(tempfile.gettempdir()) if is_stream else path.parent) as place:
            temporary = place / path.name
            write(temporary)
            if is_stream:
                with temporary.open("rb") as written, path.open("wb") as stream:
                    return shutil.copyfileobj(written, stream)
            if path.exists():
                shutil.copymode(path, temporary)
            os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def write_folder(
    folder: Path, write: Callable[[Path], None], *, ours: Set[str] = frozenset()
) -> None:
    """Have `write` fill a new folder, then swap it with the one in its place.

    Readers see the old folder or the new one, also after a crash. Of two processes that write at
    the same time, the later one wins. Raises OSError where the old folder holds a file that the
    new one lacks, other than these of ours: it may be a person's.
    """
    folder = Path(os.path.realpath(folder))  # a link to a folder stays a link
    with workspace(folder.parent) as written:
        write(written)
        settle(written, folder, ours=ours)


def settle(written: Path, folder: Path, *, ours: Set[str] = frozenset()) -> None:
    """Swap the written workspace with the folder in its place (see `write_folder`)."""
    written.chmod(stat.S_IMODE(folder.stat().st_mode) if folder.exists() else 0o777 & ~umask())
    sync(written)
    _refuse_strangers(folder, {path.name for path in written.iterdir()} | ours)
    _put(written, folder)  # the workspace now holds the old folder
    _sync_names(folder.parent)


def remove_folder(folder: Path) -> None:
    """Remove a folder in one step: after a kill it is whole, or the next writer sweeps it."""
    gone = folder.with_name(PREFIX + secrets.token_hex(8))
    with contextlib.suppress(OSError):
        os.rename(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)
    _sweep(folder.parent)


@contextlib.contextmanager
def workspace(parent: Path) -> Iterator[Path]:
    """A private folder in which to write what is then moved to its place beside it.

    It is removed at the end. If this process is killed, the next writer removes it.
    """
    parent.mkdir(parents=True, exist_ok=True)
    _sweep(parent)
    place, lock = parent / (PREFIX + secrets.token_hex(8)), None
    try:  # entered before the folder exists: Ctrl-C may come while it is made
        lock = _make(place)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def sync(path: Path) -> None:
    """Wait until the disk holds this file, or the names in this folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_names(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not every file system can
        sync(folder)


def _refuse_strangers(folder: Path, ours: set[str]) -> None:
    with contextlib.suppress(FileNotFoundError):
        for name in sorted(set(os.listdir(folder)) - ours)[:1]:
            raise OSError(errno.ENOTEMPTY, f"it holds {name!r}, which would be lost")


def _put(written: Path, folder: Path) -> None:
    for _ in range(ATTEMPTS):
        try:
            return _exchange(written, folder)
        except FileNotFoundError:  # nothing to replace yet
            pass
        except OSError as error:
            if error.errno not in UNABLE:
                raise
            return _put_aside(written, folder)
        try:
            return os.rename(written, folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise  # else another process was faster: exchange with its folder
    raise OSError(errno.EBUSY, "others keep writing there")


def _exchange(one: Path, two: Path) -> None:
    """Swap the names of two folders in one step, so that both always exist."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(two)
    if hasattr(libc, "renameat2"):
        failed = libc.renameat2(HERE, names[0], HERE, names[1], EXCHANGE)
    elif hasattr(libc, "renamex_np"):
        failed = libc.renamex_np(*names, EXCHANGE)
    else:
        raise OSError(errno.ENOSYS, "this system cannot swap two folders")
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _put_aside(written: Path, folder: Path) -> None:
    """Replace a folder where the file system cannot swap: a crash may leave the old one aside."""
    if not folder.exists():
        return os.rename(written, folder)
    aside = Path(tempfile.mkdtemp(prefix=f"{folder.name}.old-", dir=folder.parent))
    os.rename(folder, aside / folder.name)
    try:
        os.rename(written, folder)
    except OSError:
        os.rename(aside / folder.name, folder)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return None


def _make(folder: Path) -> int:
    """Make a private folder, and return the open descriptor that locks it."""
    # The parent is locked so that nobody sweeps the folder before it is locked itself. A parent
    # that is a workspace is locked already.
    inside = folder.parent.resolve().name.startswith(PREFIX)
    with contextlib.nullcontext() if inside else _locked(folder.parent, fcntl.LOCK_SH):
        folder.mkdir(mode=0o700)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return lock


def _sweep(parent: Path) -> None:
    """Remove the workspaces of killed processes: nobody holds their locks any more."""
    with _locked(parent, fcntl.LOCK_EX | fcntl.LOCK_NB) as may:
        for left in parent.glob(PREFIX + "*") if may else ():
            with _locked(left, fcntl.LOCK_EX | fcntl.LOCK_NB) as is_free:
                if is_free:
                    shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path, how: int) -> Iterator[bool]:
    """Lock a folder, and tell whether that worked: never on a file system without locks."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, how)
            locked = True
        except OSError:
            locked = False
        yield locked
    finally:
        os.close(descriptor)

"""A folder written whole or not at all: made beside its place, then swapped in, in one step."""

import contextlib
import ctypes
import errno
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

PREFIX = ".unexposed-saving-"
ATTEMPTS = 100  # at a place that others write to, too
EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS
HERE = -100  # AT_FDCWD
UNABLE = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


def write_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Have `write` fill a new folder, and put it in the place of what is there.

    Whoever looks sees the old folder or the new one, also after a crash; of two processes that
    write at the same time the later wins. A folder that holds a file the new one does not have is
    not ours to replace: OSError.
    """
    folder = Path(os.path.realpath(folder))  # a link to a folder stays a link
    with workspace(folder.parent) as written:
        write(written)
        written.chmod(_mode(folder))
        _flush(written)
        _refuse_strangers(folder, {path.name for path in written.iterdir()})
        _put(written, folder)  # what is left in the workspace is now the old one
        _sync(folder.parent)


@contextlib.contextmanager
def workspace(parent: Path) -> Iterator[Path]:
    """A folder for this user alone, in which to write what is then moved to its place beside it.

    It is gone at the end; that of a process that was killed goes with the next one's making.
    """
    parent.mkdir(parents=True, exist_ok=True)
    _sweep(parent)
    place, lock = parent / (PREFIX + secrets.token_hex(8)), None
    try:  # from before the folder is there: Ctrl-C may come with its making
        lock = _make(place)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _mode(folder: Path) -> int:
    """Who may do what with a folder: as it was, or as any new one."""
    if folder.exists():
        return stat.S_IMODE(folder.stat().st_mode)
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o777 & ~mask


def remove_folder(folder: Path) -> None:
    """Remove a folder in one step: a kill leaves it whole, or what the next writer sweeps."""
    gone = folder.with_name(PREFIX + secrets.token_hex(8))
    with contextlib.suppress(OSError):
        os.rename(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)
    _sweep(folder.parent)


def _refuse_strangers(folder: Path, ours: set[str]) -> None:
    with contextlib.suppress(FileNotFoundError):
        for name in sorted(set(os.listdir(folder)) - ours)[:1]:
            raise OSError(errno.ENOTEMPTY, f"it holds {name!r}, which would be lost")


def _put(written: Path, folder: Path) -> None:
    for _ in range(ATTEMPTS):
        try:
            return _exchange(written, folder)
        except FileNotFoundError:  # there is nothing yet
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
    """Swap the names of two folders; no one sees a moment without either."""
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
    """As `_exchange` where the file system has none: a crash between leaves the old one aside."""
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
    """Make the folder, for this user alone; the open descriptor that locks it."""
    # no one sweeps between its making and its lock; in a workspace, which is locked, no one does
    inside = folder.parent.resolve().name.startswith(PREFIX)
    with contextlib.nullcontext() if inside else _locked(folder.parent, fcntl.LOCK_SH):
        folder.mkdir(mode=0o700)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return lock


def _sweep(parent: Path) -> None:
    """Remove what processes that were killed have left: no one holds its lock any more."""
    with _locked(parent, fcntl.LOCK_EX | fcntl.LOCK_NB) as may:
        for left in parent.glob(PREFIX + "*") if may else ():
            with _locked(left, fcntl.LOCK_EX | fcntl.LOCK_NB) as is_free:
                if is_free:
                    shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path, how: int) -> Iterator[bool]:
    """Whether the folder could be locked; where a file system has no locks, it never can."""
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


def _sync(folder: Path) -> None:
    """Have the names in a folder on the disk, where it can be told so."""
    with contextlib.suppress(OSError):
        _flush(folder)


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

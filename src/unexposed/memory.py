"""How much memory is left, asked before work that would end the process without a sentence.

Running out of memory inside polars ends the whole process at once. So a caller states how much
memory it is about to need, and is refused where that is more than there is.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from unexposed.errors import InputError

GIB = 1 << 30
CURE = "raise `ulimit -v`, or use a machine with more memory"
# Allocators reserve addresses for each thread, used or not: glibc alone 512 MiB for each core.
THREAD_ADDRESSES = (os.cpu_count() or 1) * GIB
LEAST_ADDRESSES = 5 * GIB // 2 + THREAD_ADDRESSES  # what the packages map before any data
RESERVE = 128 << 20  # for the steps after reading: compiled code, buffers
ALMOST_NONE = 128 << 20
OUT_OF_MEMORY = ("allocate memory", "failed to map segment")  # as torch and the linker put it
CGROUP = Path("/sys/fs/cgroup")


def check(name: str, needed: int, *, what: str, cure: str) -> None:
    """Refuse work on `name` that takes more memory than is left."""
    for free, where, more in _left():
        if needed > free:
            raise InputError(
                f"{name}: {what} takes about {readable(needed)} of memory, and {where} "
                f"{readable(max(free, 0))}; {more}, or {cure}"
            )


def left() -> int:
    """Bytes of memory left to this process, as far as the system tells."""
    return max(0, min((free for free, _, _ in _left()), default=1 << 62))


def reserve() -> int:
    """Bytes to keep for the steps after reading, and under `ulimit -v` for threads as well."""
    return RESERVE + (0 if _address_limit() is None else THREAD_ADDRESSES)


def check_limit() -> None:
    """Refuse a limit on addresses that the packages alone would not fit into."""
    limit = _address_limit()
    if limit is not None and limit < LEAST_ADDRESSES:
        raise InputError(
            f"`ulimit -v` allows {readable(limit)} of addresses, which is less than the packages "
            f"themselves need; allow {readable(2 * LEAST_ADDRESSES)}, and more for a large log"
        )


def is_out(error: Exception) -> bool:
    """Whether an error comes from a lack of memory; any error does when hardly any is left."""
    if isinstance(error, MemoryError) or any(words in str(error) for words in OUT_OF_MEMORY):
        return True
    limit = _address_limit()
    return limit is not None and limit - _addresses_used() < ALMOST_NONE


def used_up(error: Exception) -> str:
    """The sentence for an error that comes from a lack of memory."""
    limit = _address_limit()
    lines = [line for line in str(error).splitlines() if line] or [type(error).__name__]
    whose, more = "this machine", "use a larger machine"
    if limit is not None:
        whose, more = f"this process (`ulimit -v`: {readable(limit)})", "raise that limit"
    return (
        f"the memory of {whose} is used up ({lines[0]}); lower dim (--set dim=…), give a shorter "
        f"log, or {more}"
    )


def readable(n: int) -> str:
    return f"{n / GIB:.1f} GiB" if n >= GIB else f"{n / (1 << 20):.0f} MiB"


def _left() -> Iterator[tuple[int, str, str]]:
    """Bytes left, where, and how to get more, from every source that tells."""
    limit = _address_limit()
    if limit is not None:
        yield limit - _addresses_used(), "`ulimit -v` leaves", "raise that limit"
    machine = _table(Path("/proc/meminfo"), ":")
    if "MemAvailable" in machine:
        free = (machine["MemAvailable"] + machine.get("SwapFree", 0)) << 10
        yield free, "this machine has", "use a larger one"
    group = _cgroup()
    most, used = (_number(group / name) for name in ("memory.max", "memory.current"))
    if most is not None and used is not None:
        stat = _table(group / "memory.stat", " ")
        files = stat.get("active_file", 0) + stat.get("inactive_file", 0)  # freed when needed
        yield most - used + files, "this container has", "give it more"


def _address_limit() -> int | None:
    try:
        import resource
    except ImportError:  # on Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def _addresses_used() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _cgroup() -> Path:
    """The folder of this process's group in cgroup version 2; in a container it is the root."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return CGROUP
    own = [CGROUP / line.removeprefix("0::/") for line in lines if line.startswith("0::/")]
    return next((group for group in own if (group / "memory.max").exists()), CGROUP)


def _table(path: Path, separator: str) -> dict[str, int]:
    """Lines of a name and a number."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.partition(separator) for line in lines)
    return {name: int(rest.split()[0]) for name, _, rest in pairs if rest.strip()}


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None  # "max": there is no limit

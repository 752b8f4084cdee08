"""How much memory the machine has left, asked before work that needs a known amount of it."""

from pathlib import Path

from unexposed.errors import InputError

GIB = 1 << 30
UNKNOWN = 1 << 62  # bytes left where the system does not say: nothing is refused then
CURE = "use a machine with more memory, or raise `ulimit -v`"
OUT_OF_MEMORY = ("allocate memory", "failed to map segment")  # as torch and the linker put it


def left() -> int:
    """Bytes of memory that the machine has left, as Linux tells."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return UNKNOWN
    sizes = {
        name: int(size.split()[0]) << 10 for name, _, size in (s.partition(":") for s in lines)
    }
    return sizes.get("MemAvailable", UNKNOWN) + sizes.get("SwapFree", 0)


def check(name: str, needed: int, *, what: str, cure: str) -> None:
    """Refuse work on `name` that takes more memory than is left."""
    if needed > (free := left()):
        raise InputError(
            f"{name}: {what} takes about {readable(needed)} of memory, and this machine has "
            f"{readable(free)}; use a larger one, or {cure}"
        )


def is_out(error: Exception) -> bool:
    """Whether an error comes from a lack of memory."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in OUT_OF_MEMORY)


def used_up(error: Exception) -> str:
    """The sentence for an error that comes from a lack of memory."""
    first = str(error).strip().partition("\n")[0] or type(error).__name__
    return (
        f"the memory of this machine is used up ({first}); lower dim (--set dim=…), give a shorter "
        f"log, or {CURE}"
    )


def readable(n: int) -> str:
    return f"{n / GIB:.1f} GiB" if n >= GIB else f"{n / (1 << 20):.0f} MiB"


def reserve() -> int:
    """Bytes to keep for the steps after reading: compiled code, buffers."""
    return 128 << 20

"""Lack of memory: refused before work that needs a known amount, named where it ends a command."""

from pathlib import Path

from unexposed.errors import InputError

GIB = 1 << 30
CURE = "use a machine with more memory, or raise `ulimit -v`"
OUT_OF_MEMORY = ("allocate memory", "failed to map segment")  # as torch and the linker put it


def left() -> int | None:
    """Bytes of memory that the machine has left, where Linux tells."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    sizes = {line.partition(":")[0]: int(line.split()[1]) << 10 for line in lines}
    return sizes["MemAvailable"] + sizes.get("SwapFree", 0)


def check(name: str, needed: int, *, what: str, cure: str) -> None:
    """Refuse work on `name` that takes more memory than is left."""
    free = left()
    if free is not None and needed > free:
        raise InputError(
            f"{name}: {what} takes about {needed / GIB:.1f} GiB of memory, and this machine has "
            f"{free / GIB:.1f} GiB; use a larger one, or {cure}"
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

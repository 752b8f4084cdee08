"""The process that reads a Parquet file on trial: a script, run by `parquet.Trial`.

It says what the file holds, waits for the numbers of the columns to read, and says how that went.
"""

import json
import sys
from contextlib import suppress
from pathlib import Path

import polars as pl


def main(path: str, memory: int) -> None:
    try:
        limit_memory(memory)
        frame = pl.scan_parquet(path, glob=False)
        types = dict(frame.collect_schema())
        rows = frame.select(pl.len()).collect().item()
        sizes = [8 if kind.is_numeric() else 16 for kind in types.values()]
        tell(columns=list(types), sizes=sizes, rows=rows)
        wanted = json.loads(sys.stdin.readline() or "[]")
        frame.select([pl.nth(n) for n in wanted]).collect()
        tell()
    except MemoryError:  # ends this process, as a panic or an abort of polars does
        raise
    except Exception as error:
        tell(fault=str(error).partition("\n")[0])


def limit_memory(more: int) -> None:
    """Allow this process so many bytes more than it uses, where the system can limit it."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it may well end by an abort
        pages = int(Path("/proc/self/statm").read_text().split()[5])  # that can be written to
        resource.setrlimit(resource.RLIMIT_DATA, (pages * resource.getpagesize() + more,) * 2)


def tell(**answer: object) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

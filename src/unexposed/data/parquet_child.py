"""The process that reads Parquet files on trial: a script, run by `parquet.Trial`.

For each line of input it opens a file and says what the file holds, or reads columns of the file
opened last, given by number, and says how that went.
"""

import json
import sys
from contextlib import suppress
from pathlib import Path

import polars as pl


def main(memory: int) -> None:
    limit_memory(memory)
    frame = pl.LazyFrame()
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if isinstance(asked, str):
                frame = pl.scan_parquet(asked, glob=False, hive_partitioning=False)
                types = dict(frame.collect_schema())
                rows = frame.select(pl.len()).collect().item()
                sizes = [8 if kind.is_numeric() else 16 for kind in types.values()]
                tell(columns=list(types), sizes=sizes, rows=rows)
            else:
                frame.select([pl.nth(n) for n in asked]).collect()
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
    main(int(sys.argv[1]))

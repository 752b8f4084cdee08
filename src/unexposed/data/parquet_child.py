"""The process that reads Parquet files on trial: a script, run by `parquet.Trial`.

For each line of input, a path and places of columns, it reads these columns of the file and prints
the names of all columns, or what is wrong with the file.
"""

import json
import sys

import polars as pl

for line in sys.stdin:
    path, places = json.loads(line)
    answer: list[str] | str
    try:
        frame = pl.scan_parquet(path, glob=False, hive_partitioning=False)
        answer = frame.collect_schema().names()
        frame.select([pl.nth(n) for n in places]).collect()
    except Exception as error:  # a panic or an abort of polars ends this process
        answer = str(error).partition("\n")[0]
    print(json.dumps(answer), flush=True)

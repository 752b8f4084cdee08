"""Results of an experiment: a file of finished runs, the values of users, and a journal.

NAME.json holds every finished run, a line for each arm: its settings, what ran where, and the
means; and the comparison of the arms with its intervals and tests. NAME.parquet holds the value of
each user, which tests of other pairs need; without it the comparison stands as it was stored.

NAME.jsonl is the journal: a line for each run since the file was written, lost by no kill.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from unexposed.errors import InputError
from unexposed.files import write_whole

Line = dict[str, Any]  # one run: an arm with a seed


class Results:
    """The files of one experiment in a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.file = folder / f"{name}.json"
        self.values = folder / f"{name}.parquet"
        self.journal = folder / f"{name}.jsonl"
        self.fresh = folder / f"{name}.fresh.jsonl"  # a journal of runs that replace finished ones

    def read(self) -> list[Line]:
        """Every stored run: those of the file with the values of users, then the journal's."""
        return [*self._with_values(unfolded(self.document())), *read_journal(self.journal)]

    def document(self) -> dict[str, Any]:
        """The file of finished runs; without any, of no arms."""
        try:
            text = self.file.read_text(encoding="utf-8") if self.file.exists() else "{}"
            found: dict[str, Any] = json.loads(text)
            unfolded(found)
        except OSError as error:
            raise InputError(f"cannot read {self.file}: {error.strerror or error}") from error
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(
                f"{self.file} is damaged; remove it to repeat its runs, or restore it"
            ) from None
        return found

    def write(self, lines: Iterable[Line], comparisons: Mapping[str, Any]) -> None:
        """Replace the stored runs, and drop the journal whose runs they hold.

        A kill between the writes leaves the journal, from which all of it is written again.
        """
        lines = list(lines)
        self._write_values(lines)
        document = {**folded([_light(line) for line in lines]), "comparisons": comparisons}
        write_whole(self.file, lambda to: to.write_text(_text(document), encoding="utf-8"))
        self.journal.unlink(missing_ok=True)

    def check_place(self) -> None:
        """Refuse a folder that cannot be written, before the work begins."""
        here = self.file.parent
        while not here.exists():
            here = here.parent
        if self.file.is_dir() or not here.is_dir() or not os.access(here, os.W_OK):
            raise InputError(f"cannot write {self.file}: {here} is not a writable folder")

    def _with_values(self, lines: list[Line]) -> list[Line]:
        if not self.values.exists() or not lines:
            return lines
        import polars as pl

        try:
            rows = pl.read_parquet(self.values).rows(named=True)
            of_run: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
            for row in rows:
                found = of_run.setdefault((row["arm"], row["seed"]), {})
                found.setdefault(row["protocol"], {})[row["metric"]] = np.array(row["values"])
        except (OSError, pl.exceptions.PolarsError, KeyError) as error:
            raise InputError(f"{self.values} is damaged: restore it, or remove it") from error
        for line in lines:
            for protocol, values in of_run.get((line["arm"], line["seed"]), {}).items():
                line["protocols"][protocol]["values"] = values
        return lines

    def _write_values(self, lines: list[Line]) -> None:
        import polars as pl

        rows = [
            {"protocol": protocol, "metric": metric, "arm": line["arm"], "seed": line["seed"]}
            | {"values": np.asarray(values, dtype=np.float64)}
            for line in lines
            for protocol, stored in line.get("protocols", {}).items()
            for metric, values in stored.get("values", {}).items()
        ]
        if not rows:
            return self.values.unlink(missing_ok=True)
        table = pl.DataFrame(rows, schema_overrides={"values": pl.List(pl.Float64)})
        table = table.sort("protocol", "metric", maintain_order=True)
        self.values.parent.mkdir(parents=True, exist_ok=True)
        return write_whole(
            self.values,
            lambda to: table.write_parquet(to, compression="zstd", compression_level=19),
        )


def folded(lines: list[Line]) -> dict[str, Any]:
    """Runs as a document that says once what all of them, or all of an arm, have in common."""
    common = _shared(lines)
    arms = []
    for name in dict.fromkeys(line["arm"] for line in lines):
        own = [line for line in lines if line["arm"] == name]
        of_arm = {key: value for key, value in _shared(own).items() if key not in common}
        known = common.keys() | of_arm.keys()
        runs = [{key: value for key, value in line.items() if key not in known} for line in own]
        arms.append({**of_arm, "runs": runs})
    return {"common": common, "arms": arms}


def unfolded(document: Mapping[str, Any]) -> list[Line]:
    """The runs of a document that `folded` made."""
    found = []
    for arm in document.get("arms", []):
        shared = {**document["common"], **{k: value for k, value in arm.items() if k != "runs"}}
        for run in arm["runs"]:
            line = {**shared, **run}
            if not isinstance(line["arm"], str) or type(line["seed"]) is not int:
                raise ValueError("not a run")
            found.append(json.loads(json.dumps(line)))  # its own: no two runs share a dict
    return found


def _shared(lines: list[Line]) -> dict[str, Any]:
    """What all runs have in common, but the seed, which a single run would share with itself."""
    first, *others = lines or [{}]
    return {
        key: value
        for key, value in first.items()
        if key not in ("seed", "protocols")
        and all(key in line and line[key] == value for line in others)
    }


def _light(line: Line) -> Line:
    """The run with the means of its metrics in place of the values of users."""
    if "protocols" not in line:
        return line
    protocols = {
        name: {key: value for key, value in stored.items() if key != "values"}
        for name, stored in line["protocols"].items()
    }
    return {**line, "protocols": protocols}


def _text(document: Mapping[str, Any]) -> str:
    """JSON with a line for each arm and each comparison."""

    def lines(parts: Iterable[str]) -> str:
        return ",\n".join(parts)

    arms = lines(_json(arm) for arm in document["arms"])
    compared = lines(f"{_json(k)}: {_json(v)}" for k, v in document["comparisons"].items())
    return (
        f'{{"common": {_json(document["common"])},\n'
        f'"arms": [\n{arms}\n],\n"comparisons": {{\n{compared}\n}}}}\n'
    )


def _json(part: Any) -> str:
    return json.dumps(part, allow_nan=False, separators=(",", ":"), ensure_ascii=False)


def read_journal(path: Path) -> list[Line]:
    """The runs of a journal in order; a last line cut short by a kill does not count."""
    try:
        text = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    lines = []
    for number, raw in enumerate(text.split(b"\n")[:-1], 1):
        try:
            line = json.loads(raw)
            if not (isinstance(line, dict) and isinstance(line["arm"], str)):
                raise ValueError("not a run")
            line["seed"] = int(line["seed"])
        except (ValueError, KeyError, TypeError):
            raise InputError(
                f"{path}, line {number} is damaged; remove that line to repeat its run"
            ) from None
        lines.append(line)
    return lines


def mend(path: Path) -> bool:
    """Cut off a last line that a kill left unfinished; say whether there was one."""
    raw = path.read_bytes() if path.exists() else b""
    whole = raw.rfind(b"\n") + 1
    if whole == len(raw):
        return False
    os.truncate(path, whole)
    return True


def append(path: Path, line: Line) -> None:
    """Append a run to a journal; it is on the disk when this returns."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # opened for each line, because another run may have removed the file
        with path.open("ab") as file:
            file.write(f"{_json(line)}\n".encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error

"""The Dockerfile names what exists; no image is built here."""

import json
import re
from pathlib import Path

import typer

from unexposed.cli import app
from unexposed.serve.app import CALLS

ROOT = Path(__file__).parents[2]
LINES = re.sub(r"\\\n\s*", " ", (ROOT / "Dockerfile").read_text()).splitlines()


def instructions(word: str) -> list[str]:
    return [line.removeprefix(word + " ") for line in LINES if line.startswith(word + " ")]


def words(instruction: str) -> list[str]:
    """The words of an instruction in its JSON form."""
    return json.loads(instruction[instruction.index("[") :])


def test_the_versions_are_the_ones_of_the_project():
    install = " ".join(instructions("RUN"))
    (torch,) = re.findall(r"torch==\S+", install)
    assert f"TORCH := {torch} " in (ROOT / "Makefile").read_text()
    pattern = re.search(r"grep -oE '([^']+)' constraints.txt", install)[1]
    pins = re.findall(pattern, (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    names = [pin.partition("==")[0] for pin in pins]
    assert {"starlette", "msgspec"} <= set(names)
    assert len(names) == len(set(names))


def test_it_runs_the_command_as_nobody_special_and_asks_for_its_health():
    names = ("CMD", "HEALTHCHECK", "EXPOSE", "USER", "COPY")
    (command,), (check,), (port,), (user,), copied = map(instructions, names)
    assert all((ROOT / one).exists() for line in copied for one in line.split()[:-1])
    program, name, _, *options = words(command)
    taken = typer.main.get_command(app).commands[name].params
    assert program == "unexposed"
    assert set(options[::2]) <= {option for one in taken for option in one.opts}
    (path,) = re.findall(rf"127\.0\.0\.1:{port}(/\w+)", words(check)[-1])
    assert path in {call.path for call in CALLS}
    assert user not in ("root", "0")

"""The Dockerfile names what exists; no image is built here."""

import json
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import typer

from unexposed.cli import app
from unexposed.serve.routes import CALLS

ROOT = Path(__file__).parents[2]
LINES = re.sub(r"\\\n\s*", " ", (ROOT / "Dockerfile").read_text()).splitlines()
IGNORED = (ROOT / ".dockerignore").read_text().splitlines()


def instructions(word: str) -> list[str]:
    return [line.removeprefix(word + " ") for line in LINES if line.startswith(word + " ")]


def words(instruction: str) -> list[str]:
    """The words of an instruction in its JSON form."""
    return json.loads(instruction[instruction.index("[") :])


def test_what_is_copied_exists_and_is_not_ignored():
    copied = [name for line in instructions("COPY") for name in line.split()[:-1]]
    assert "src" in copied
    kept = {line.removeprefix("!") for line in IGNORED if line.startswith("!")}
    assert kept == set(copied)
    assert all((ROOT / name).exists() for name in copied)


def test_the_package_is_built_from_what_is_copied():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = [project["project"]["readme"], *project["project"]["license-files"]]
    assert set(needed) <= {line.removeprefix("!") for line in IGNORED}
    patterns = project["tool"]["setuptools"]["package-data"]["unexposed"]
    page = ROOT / "src" / "unexposed" / "serve" / "page"
    for file in page.iterdir():
        name = str(file.relative_to(ROOT / "src" / "unexposed"))
        assert any(fnmatch(name, pattern) for pattern in patterns)


def test_the_extra_and_the_version_of_torch_are_the_ones_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    install = " ".join(instructions("RUN"))
    (extra,) = re.findall(r"'\.\[(\w+)\]'", install)
    assert extra in project["optional-dependencies"]
    (torch,) = re.findall(r"torch==\S+", install)
    assert f"TORCH := {torch} " in (ROOT / "Makefile").read_text()
    pattern = re.search(r"grep -oE '([^']+)' constraints.txt", install)[1]
    pins = re.findall(pattern, (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert "starlette" in {pin.partition("==")[0] for pin in pins}
    assert len(pins) == len({pin.partition("==")[0] for pin in pins})


def test_the_command_is_one_of_ours_and_its_options_are_known():
    (command,) = instructions("CMD")
    program, name, folder, *options = words(command)
    assert (program, folder) == ("unexposed", "/model")
    known = typer.main.get_command(app).commands[name].params
    assert set(options[::2]) <= {option for one in known for option in one.opts}


def test_it_asks_for_the_health_of_the_port_it_opens_as_nobody_special():
    (check,), (port,), (user,) = map(instructions, ("HEALTHCHECK", "EXPOSE", "USER"))
    (path,) = re.findall(rf"127\.0\.0\.1:{port}(/\w+)", words(check)[-1])
    assert path in {call.path for call in CALLS}
    compile(words(check)[-1], "HEALTHCHECK", "exec")
    assert user not in ("root", "0")
    assert LINES.index(f"USER {user}") < next(n for n, x in enumerate(LINES) if x.startswith("CMD"))

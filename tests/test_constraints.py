"""What `make setup` installs is known to the byte."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def named(requirement: str) -> str:
    return re.split(r"[^\w-]", requirement)[0].lower().replace("_", "-")


def test_every_package_of_every_extra_is_pinned_with_its_hashes():
    text = (ROOT / "constraints.txt").read_text()
    pins = re.findall(r"^([\w-]+)==.*\\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE)
    assert len(pins) == len(re.findall(r"^\w", text, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    (line,) = re.findall(r"^EXTRAS := ([\w ]*\w)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {*line.split()} == extras.keys() - {"scale"}
    for asked in (project["dependencies"], *map(extras.get, line.split())):
        assert {named(one) for one in asked} <= {*pins, "torch"}


def test_setup_installs_nothing_but_torch_without_a_hash():
    """Which build of torch pip takes depends on the machine, so its hash cannot be stated."""
    lines = [line for line in (ROOT / "Makefile").read_text().splitlines() if "pip install" in line]
    assert lines
    allowed = ("--require-hashes", "--no-deps", "$(TORCH)")
    assert all(any(word in line for word in allowed) for line in lines)

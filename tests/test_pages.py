"""README and the pages of docs/ run as they stand, and name what exists."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import unexposed
from unexposed import cli

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
EXECUTED = [page for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def commands(block: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output that the page shows."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
    assert parts[0] == "", "a console block begins with a command"
    return [(line, shown) for line, _, shown in (part.partition("\n") for part in parts[1:])]


def run(line: str) -> str:
    """The output of a command; one of ours runs in this process, which is faster."""
    words = shlex.split(line)
    if words[0] != "unexposed":
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            line,
            shell=True,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        return done.stderr + done.stdout
    printed, code = io.StringIO(), 0
    before, sys.argv = sys.argv, words
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            cli.main()
    except SystemExit as end:
        code = end.code
    finally:
        sys.argv = before
    assert not code, f"{line}\n{printed.getvalue()}"
    return printed.getvalue()


def matches(shown: str, printed: str) -> bool:
    """Whether the output is the one shown, where … stands for anything."""
    wanted = ".*".join(re.escape(part.strip("\n")) for part in shown.split("…"))
    return not shown or re.fullmatch(rf"\s*{wanted}\s*", printed, flags=re.DOTALL) is not None


@pytest.mark.parametrize("page", EXECUTED, ids=name)
def test_every_command_and_example_of_a_page_runs_and_prints_what_it_shows(
    page, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UNEXPOSED_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    namespace: dict[str, object] = {}
    for language, block in BLOCK.findall(text(page)):
        if language == "python":
            exec(compile(block, page.name, "exec"), namespace)
            continue
        for line, shown in commands(block):
            printed = run(line)
            assert matches(shown, printed), f"{line}\nshown:\n{shown}\nprinted:\n{printed}"
    if page.name == "tutorial.md":  # nearly all are what the customer likes, it says
        rows = [line.split(",")[:2] for line in Path("recommended.csv").read_text().splitlines()]
        liked = [int(item[1:]) % 4 == int(user[1:]) % 4 for user, item in rows[1:]]
        assert sum(liked) > 0.8 * len(liked)


def test_an_ellipsis_matches_anything_and_nothing_else_does():
    assert matches("a …\n…\nlast line\n", "a b\nc\nd\nlast line\n")
    assert not matches("a …\nlast line\n", "a b\nother line\n")
    assert not matches("first\n", "first\nsecond\n")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_file_that_a_page_names_exists(page):
    links = re.findall(r"\]\(([^)#\s]+)", text(page))
    assert not [one for one in links if ":" not in one and not (page.parent / one).exists()]
    named = re.findall(r"(?<![\w*/.-])(?:[\w-]+/)*\w+\.(?:py|toml|sh)\b", text(page))
    bases = ROOT, ROOT / "src" / "unexposed"
    assert not [one for one in named if not any((base / one).is_file() for base in bases)]


def test_every_public_name_is_found_where_the_package_says():
    assert all(getattr(unexposed, name) is not None for name in unexposed.__all__)


@pytest.mark.slow
def test_the_site_is_built_without_a_broken_link_and_has_every_public_name(tmp_path):
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    source = f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": source}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    commands = text(tmp_path / "reference" / "commands.html")
    assert all(f'id="{one.callback.__name__}"' in commands for one in cli.app.registered_commands)
    reference = "".join(text(page) for page in (tmp_path / "reference").glob("*.html"))
    for public in set(unexposed.__all__) - {"__version__"}:
        value = getattr(unexposed, public)
        listed = value if isinstance(value, dict) else [public]
        assert all(f"{one}" in reference for one in listed), public

"""The README and the pages of docs/ run as shown, and their links and tables hold."""

import contextlib
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from unexposed import cli

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = [README, *sorted(DOCS.glob("*.md")), *sorted((DOCS / "reference").glob("*.md"))]
MOST_WORDS = 1500
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
EXECUTED = [page for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))]


def program(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pages_as_html, reference = program("make_html"), program("make_reference")
methods_table = program("make_methods_table")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def commands(block: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output the page shows."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
    assert parts[0] == "", "a console block begins with a command"
    return [(line, said) for line, _, said in (part.partition("\n") for part in parts[1:])]


def run(line: str, *, in_shell: bool) -> str:
    """The output of a command; without `in_shell` it runs in this process, which is faster."""
    words = shlex.split(line)
    if in_shell or words[0] != "unexposed":
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path}
        done = subprocess.run(
            line, shell=True, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        return done.stderr + done.stdout
    printed = io.StringIO()
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


def matches(said: str, printed: str) -> bool:
    """Whether the output matches what is shown, where … stands for anything."""
    wanted = ".*".join(re.escape(part.strip("\n")) for part in said.split("…"))
    return not said or re.fullmatch(rf"\s*{wanted}\s*", printed, flags=re.DOTALL) is not None


@pytest.mark.parametrize("page", EXECUTED, ids=name)
def test_every_command_and_example_of_a_page_runs_and_prints_what_it_shows(
    page, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UNEXPOSED_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    namespace: dict[str, object] = {}
    for language, block in BLOCK.findall(text(page)):
        if language == "python":
            exec(compile(block, page.name, "exec"), namespace)
            continue
        for line, said in commands(block):
            first = line.startswith("unexposed simulate")  # the command is installed
            printed = run(line, in_shell=page == README and first)
            assert matches(said, printed), f"{line}\nshown:\n{said}\nprinted:\n{printed}"
    if page.name == "tutorial.md":
        assert share_of_recommendations_to_taste() > 0.8  # "nearly all", it says
    if page == README:
        assert {"shop", "model", "recommended.csv"} <= set(os.listdir())
        assert "ndcg@10" in capsys.readouterr().out


def share_of_recommendations_to_taste() -> float:
    """Share of the tutorial's recommendations that the customer likes: every fourth product."""
    rows = [line.split(",")[:2] for line in Path("recommended.csv").read_text().splitlines()[1:]]
    return sum(int(item[1:]) % 4 == int(user[1:]) % 4 for user, item in rows) / len(rows)


def test_an_ellipsis_matches_anything_and_nothing_else_does():
    assert matches("a …\n…\nlast line\n", "a b\nc\nd\nlast line\n")
    assert matches("", "anything")
    assert not matches("a …\nlast line\n", "a b\nother line\n")
    assert not matches("first\n", "first\nsecond\n")
    assert commands("$ one\nout\n$ two\n") == [("one", "out\n"), ("two", "")]


def test_the_python_example_of_the_readme_is_short():
    (example,) = [block for language, block in BLOCK.findall(text(README)) if language == "python"]
    assert len(example.strip().splitlines()) <= 12


def test_the_examples_of_the_export_page_are_short():
    for language, block in BLOCK.findall(text(ROOT / "docs" / "export.md")):
        assert language == "console" or len(block.strip().splitlines()) <= 12


def test_the_tables_of_methods_match_the_code():
    for page in methods_table.PAGES:
        assert text(page) == methods_table.filled(text(page)), "run: make docs"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_page_is_short(page):
    assert len(text(page).split()) < (950 if page == README else MOST_WORDS)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page):
    for link in pages_as_html.links(page):
        if re.match("[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in pages_as_html.anchors(target), link


def test_every_page_is_linked_from_the_index_and_every_page_named_in_the_readme_exists():
    index, reference_index = DOCS / "README.md", DOCS / "reference" / "README.md"
    linked = {
        (page.parent / link).resolve()
        for page in (index, reference_index)
        for link in pages_as_html.links(page)
    }
    assert set(PAGES) - {index} <= linked
    for page in re.findall(r"`(docs/[\w.]+)`", text(README)):
        assert (ROOT / page).is_file(), page


def test_anchors_match_github():
    assert pages_as_html.slug("Held-out clicks: SNIPS") == "held-out-clicks-snips"
    assert pages_as_html.slug("mf, bpr, wmf, random, popularity") == (
        "mf-bpr-wmf-random-popularity"
    )


def test_the_reference_matches_the_code():
    found = {page.name: text(page) for page in reference.FOLDER.glob("*.md")}
    assert found == reference.reference(), "run: make docs"


def test_the_reference_lists_every_command_name_and_setting():
    import unexposed
    from unexposed.methods import METHODS
    from unexposed.settings import known

    pages = {page.stem: text(page) for page in reference.FOLDER.glob("*.md")}
    for command in cli.app.registered_commands:
        called = command.callback.__name__
        assert f"# unexposed {called}\n" in pages[called]
    for public in set(unexposed.__all__) - {"__version__"}:
        assert any(f"ux.{public}" in page for page in pages.values()), public
    for called, method in METHODS.items():
        for setting in known(method):
            assert f"| `{setting}` |" in pages[f"settings-{called}"]


def test_every_page_becomes_html_with_links_between_the_files(tmp_path, monkeypatch):
    monkeypatch.setattr(pages_as_html, "OUT", tmp_path / "docs")
    monkeypatch.chdir(tmp_path)
    pages_as_html.main()
    made = {path.name: text(path) for path in (tmp_path / "docs").iterdir()}
    assert {"index.html", "tutorial.html", "reference.html", "reference-fit.html"} <= set(made)
    for file, page in made.items():
        assert page.count("<h1") == 1, file
        for link in re.findall(r'href="([^"]*)"', page):
            path, _, anchor = link.partition("#")
            if re.match("[a-z]+:", link) or path.startswith("../../"):
                continue
            target = made[path] if path else page
            assert not anchor or f'id="{anchor}"' in target, f"{file}: {link}"
    assert "<table>" in made["choosing.html"]
    assert re.search(r"\bimg \{ max-width: 100%", made["project-readme.html"])  # on any screen
    assert '<td data-head="default">' in made["reference-fit.html"]  # for a narrow screen

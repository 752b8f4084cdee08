"""Pages name files, and the package names, that are there."""

import re
from pathlib import Path

import pytest

import unexposed

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_source_file_named_in_a_page_exists(page):
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"(?<![\w*/.-])(?:[\w-]+/)*\w+\.(?:py|toml|sh)\b", text)
    bases = ROOT, ROOT / "src" / "unexposed"
    assert not [name for name in named if not any((base / name).is_file() for base in bases)]


def test_every_public_name_is_found_where_the_package_says():
    assert all(getattr(unexposed, name) is not None for name in unexposed.__all__)

"""The tables of the pages match the committed results."""

import pages


def test_every_table_of_the_pages_matches_the_committed_results():
    made = pages.pages()
    stale = [path.name for path, text in made.items() if path.read_text(encoding="utf-8") != text]
    assert not stale, "run: python experiments/lib/pages.py"
    every = "".join(made.values())
    assert not [name for name in pages.TABLES if f"<!-- {name} -->" not in every]

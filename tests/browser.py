"""How wide a browser lays a page out, and whether the page is self-contained."""

import re
import subprocess
from pathlib import Path


def check_self_contained(page: str) -> None:
    """No script, no handler, no address outside the page."""
    assert "<script" not in page.lower()
    assert not re.search(r"\bon\w+=", re.sub(r">[^<]*<", "><", page))
    for address in re.findall(r'(?:href|src|xlink:href)="([^"]*)"', page):
        assert address.startswith("#")
    assert not re.search(r"https?:|@import|url\((?!#)", page)


def page_width(page: Path, folder: Path, width: int) -> int:
    """The width of the page in a frame of this width; if larger, the page scrolls sideways.

    In a frame, because a headless window cannot be as narrow as a phone.
    """
    probe = folder / "probe.html"
    probe.write_text(
        f'<iframe id="f" src="{page.as_uri()}" width="{width}" height="900" style="border:0" '
        "onload=\"document.title = f.contentDocument.documentElement.scrollWidth + ' wide, ' + "
        "f.contentDocument.querySelectorAll('svg').length + ' drawings'\"></iframe>",
        encoding="utf-8",
    )
    done = subprocess.run(
        [
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--allow-file-access-from-files",
            f"--user-data-dir={folder / 'profile'}",
            "--dump-dom",
            probe.as_uri(),
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = re.search(r"<title>(\d+) wide, (\d+) drawings", done.stdout)
    assert found, done.stdout[:500]
    assert int(found[2]) > 0
    return int(found[1])

"""The checkerboard and a small world, and where the real data is."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.data.worlds.simulate import World, world

# the same examples on every run, however slow the machine
settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.load_profile("fixed")


@pytest.fixture(scope="session")
def checkerboard() -> tuple[Clicks, list[tuple[str, str]]]:
    """Even users click even items, odd users odd ones; one click of each user is withheld."""
    n = 24
    users, items = np.meshgrid(np.arange(n), np.arange(n), indexing="ij")
    clicked = (users + items) % 2 == 0
    withheld = items == (users + 2 * (users % 5)) % n  # one item of the user's own colour
    user_ids = Ids.of(f"user {u}" for u in range(n))
    item_ids = Ids.of(f"item {i}" for i in range(n))
    kept = clicked & ~withheld
    clicks = Clicks.from_pairs(users[kept], items[kept], user_ids=user_ids, item_ids=item_ids)
    answers = [(f"user {u}", f"item {i}") for u, i in np.argwhere(clicked & withheld)]
    return clicks, answers


@pytest.fixture(scope="session")
def small_world() -> World:
    return world(120, 60, seed=3)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of the real data sets; tests marked `data` are skipped without it."""
    folder = os.environ.get("UNEXPOSED_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("the real data sets are not here: set $UNEXPOSED_DATA to their folder")
    return Path(folder).resolve()  # tests change the working folder

"""A data set of the field: where it comes from, and the parts that its files hold."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unexposed.cards import Card, HasCard
from unexposed.data.clicks import Ratings
from unexposed.data.labelled import KnownExposure

HOLDS = {  # what a data set may hold beside clicks → what it is
    "impressions": "what was shown, clicked or not",
    "random": "pairs that nobody chose, with labels: shown at random, or all of them",
    "propensities": "the logged chance of each showing",
    "exposure": "whether users knew the item before: a truth for learned exposure",
}


@dataclass(frozen=True, eq=False)
class RatingData:
    """The parts of a data set, over the same users and items."""

    logged: Ratings  # of items that users chose to rate, or were led to
    random: Ratings | None = None  # of items shown uniformly at random, or of all items
    user_features: NDArray[np.float32] | None = None
    item_features: NDArray[np.float32] | None = None
    item_titles: list[str] | None = None
    exposure: KnownExposure | None = None  # of pairs beside the logged ones

    def holds(self) -> set[str]:
        """Names of `HOLDS`."""
        shown = self.logged.shown
        parts = {
            "impressions": shown,
            "random": self.random,
            "propensities": shown and shown.propensity,
            "exposure": self.exposure,
        }
        return {name for name, part in parts.items() if part is not None}


@dataclass(frozen=True, eq=False)
class Dataset(HasCard):
    """The source of a data set, and the reader of its files.

    A file whose SHA-256 is None has no published checksum and is accepted as it comes. A download
    records its checksum beside the file, and the file must keep it.
    """

    title: str
    read: Callable[[Path], RatingData]
    folder: str
    files: dict[str, str | None]  # path inside the folder → SHA-256
    homepage: str
    terms: str
    download: str | None = None  # an archive (.zip, .tar.gz), or the only file itself
    by_hand: str = "allow the download, or"  # what to do where the files are missing
    holds: frozenset[str] = frozenset()  # names of `HOLDS`
    clicks: str = "a rating of at least 4"  # what counts as a click
    archive_md5: str | None = None  # as its publisher gives it

    @property
    def absent(self) -> str:
        """How to get the data set."""
        return f"{self.by_hand} put its files into $UNEXPOSED_DATA/{self.folder}"

    def __repr__(self) -> str:
        return f"Dataset({self.title!r})"

    def card(self) -> Card:
        """What it holds, and its terms."""
        facts = {"clicks": self.clicks, "holds": ", ".join(sorted(self.holds)) or "clicks alone"}
        return Card(self.title, facts | {"terms": self.terms})

"""Features of users and items: their encoded rows by raw id."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.data.encoding import Encoding
from unexposed.data.ids import Ids, joined, match

Role = Literal["user", "item"]


@dataclass(frozen=True, eq=False)
class Features:
    """Encoded features of users or items, by raw id."""

    ids: Ids
    matrix: NDArray[np.float32]  # a row for each id, a column for each of `encoding.columns`
    encoding: Encoding

    def of(self, ids: Ids) -> NDArray[np.float32]:
        """The row of each of these ids; an id without features has a row of missing values."""
        at = match(ids, self.ids)
        rows = self.encoding.missing(len(ids))
        rows[at >= 0] = self.matrix[at[at >= 0]]
        return rows


def with_items(clicks: Clicks, ids: Ids) -> Clicks:
    """The clicks with these items in the catalogue, so that those without a click can be served."""
    new = match(ids, clicks.item_ids) < 0
    if not new.any():
        return clicks
    every = joined(clicks.item_ids, ids, new)
    shown = clicks.shown and replace(clicks.shown, item_ids=every)
    share = clicks.share
    if share is not None:
        share = replace(share, item_counts=np.pad(share.item_counts, (0, int(new.sum()))))
    return replace(clicks.checked(), item_ids=every, shown=shown, share=share)

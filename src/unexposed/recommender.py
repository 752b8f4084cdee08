"""The contract: a method holds settings and fits; the model it gives scores and recommends."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from unexposed import progress as show
from unexposed import settings as checks
from unexposed.checkpoint import EVERY, Checkpoint, fingerprint, remove
from unexposed.data import Clicks, Ids, Indices
from unexposed.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from unexposed.validation import ValidationSet

Parameters = dict[str, NDArray[Any]]
Block = NDArray[np.float32]  # users of a block × all items

HELD_OUT_FRACTION = 0.1  # of the clicks, when `fit` is given no held-out clicks
BLOCK_ENTRIES = 4_000_000  # scores held at a time: memory stays bounded for any catalogue


@dataclass(frozen=True, eq=False)
class Side:
    """What a method may be given beside the clicks; one that cannot use a part refuses it."""

    exposure: NDArray[Any] | None = None  # known exposure, (n_items,) or (n_users, n_items)
    user_features: NDArray[Any] | None = None  # (n_users, …), mapped into the user's exposure
    validation: "ValidationSet | None" = None  # real random traffic, to guide the exposure

    def given(self) -> set[str]:
        return {f.name for f in fields(self) if getattr(self, f.name) is not None}


@dataclass(frozen=True)
class Recommender(ABC):
    """A method and its settings; `fit` gives a model and changes nothing here."""

    name: ClassVar[str]
    takes: ClassVar[frozenset[str]] = frozenset()  # the parts of Side it can use

    def __post_init__(self) -> None:
        checks.check_values(self.name, self)

    @final
    def fit(
        self,
        clicks: Clicks,
        held_out: Clicks | None = None,
        *,
        seed: int = 0,
        side: Side | None = None,
        progress: show.Progress | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: float = EVERY,
        resume: bool = False,
    ) -> "Model":
        """Learn from clicks; the held-out ones choose the epoch (a tenth is set aside if none).

        `checkpoint` names a folder for what a killed training needs to go on: give it again, with
        `resume`. It is written after an epoch once `checkpoint_every` seconds have passed, and
        removed when the model is saved.
        """
        if not isinstance(clicks, Clicks) or not isinstance(held_out, Clicks | None):
            raise InputError(
                f"{self.name} learns from Clicks, got {type(clicks).__name__}: "
                "read_log makes them from a file or a frame"
            )
        if len(clicks) == 0:
            raise InputError(f"{self.name} cannot learn from a log without clicks")
        clicks = clicks.checked()
        side = side or Side()
        for part in side.given() - self.takes:
            raise InputError(f"{self.name} cannot use {part}")
        if held_out is None:
            seen = clicks
            clicks, held_out = clicks.hold_out(fraction=HELD_OUT_FRACTION, seed=seed)
        else:
            seen = clicks.union(held_out)
        kept, folder = None, None if checkpoint is None else Path(checkpoint)
        if folder is not None:
            of = fingerprint(self, clicks, held_out, seed=seed, side=side)
            kept = Checkpoint(folder, of=of, resume=resume, every=checkpoint_every)
        elif resume:
            raise InputError("resume needs the checkpoint to go on from: give checkpoint=FOLDER")
        with progress or show.on_terminal(otherwise=show.Silent) as told:
            parameters, facts = self.train(
                clicks, held_out, seed=seed, side=side, progress=told, checkpoint=kept
            )
        return Model(self, parameters, seen, {"seed": seed, **facts}, folder)

    @abstractmethod
    def train(
        self,
        clicks: Clicks,
        held_out: Clicks,
        *,
        seed: int,
        side: Side,
        progress: show.Progress,
        checkpoint: Checkpoint | None = None,
    ) -> tuple[Parameters, dict[str, Any]]:
        """What was learned, as arrays by name, and the facts of the training."""

    @abstractmethod
    def scores(self, parameters: Parameters, users: Indices) -> Block:
        """How relevant every item is to each of these users; only the order matters."""

    def exposure(self, parameters: Parameters, users: Indices) -> Block | None:
        """How likely each of these users was shown each item, where the method models it."""
        del parameters, users
        return None


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted method, spoken to in raw ids."""

    method: Recommender
    parameters: Parameters
    clicks: Clicks  # all it has seen, held-out ones included
    facts: dict[str, Any]
    checkpoint: Path | None = None  # of its training; not needed once the model is saved

    @property
    def user_ids(self) -> Ids:
        return self.clicks.user_ids

    @property
    def item_ids(self) -> Ids:
        return self.clicks.item_ids

    def blocks(self, users: Indices) -> Iterator[tuple[slice, Block]]:
        """Scores of all items for these users (indices), a bounded part at a time."""
        return blocks(lambda part: self.method.scores(self.parameters, part), users, self.clicks)

    def score(self, users: Sequence[Hashable], items: Sequence[Hashable]) -> NDArray[np.float32]:
        """The score of each pair of raw ids."""
        return self._pairwise(self.method.scores, users, items)

    def exposure(self, users: Sequence[Hashable], items: Sequence[Hashable]) -> NDArray[np.float32]:
        """The learned or given exposure of each pair of raw ids."""
        if self.method.exposure(self.parameters, np.zeros(0, dtype=np.int32)) is None:
            raise InputError(f"{self.method.name} has no exposure model")
        return self._pairwise(self.method.exposure, users, items)

    def _pairwise(
        self, of: Any, users: Sequence[Hashable], items: Sequence[Hashable]
    ) -> NDArray[np.float32]:
        if len(users) != len(items):
            raise InputError(f"got {len(users)} users for {len(items)} items: give pairs")
        rows, columns = self._known(users, "user"), self._known(items, "item")
        distinct, place = np.unique(rows, return_inverse=True)
        out = np.empty(len(rows), dtype=np.float32)
        for part, block in blocks(lambda u: of(self.parameters, u), distinct, self.clicks):
            here = (place >= part.start) & (place < part.stop)
            out[here] = block[place[here] - part.start, columns[here]]
        return out

    def recommend(
        self, users: Sequence[Hashable], k: int = 10, *, hide_clicked: bool = True
    ) -> "pl.DataFrame":
        """The k best items for each user: columns user, item, rank, score and, if known, exposure.

        A user for whom fewer than k items remain gets fewer.
        """
        import polars as pl

        rows = self._known(users, "user")
        items, scores = self.top(rows, k, hide_clicked=hide_clicked)
        kept = items >= 0
        at = np.nonzero(kept)
        columns = {
            "user": column(self.user_ids.values[rows[at[0]]]),
            "item": column(self.item_ids.values[items[kept]]),
            "rank": pl.Series((at[1] + 1).astype(np.int32)),
            "score": pl.Series(scores[kept]),
        }
        if self.method.exposure(self.parameters, rows[:0]) is not None:
            columns["exposure"] = pl.Series(self._exposure_of(rows, items)[kept])
        return pl.DataFrame(columns)

    def top(
        self, users: Indices, k: int, *, hide_clicked: bool = True
    ) -> tuple[Indices, NDArray[np.float32]]:
        """The k best items of each user by index, −1 where none is left, and their scores."""
        n_items = len(self.item_ids)
        if not 1 <= k <= n_items:
            raise InputError(f"k must be between 1 and {n_items} items, got {k}")
        top_items = np.full((len(users), k), -1, dtype=np.int32)
        top_scores = np.full((len(users), k), -np.inf, dtype=np.float32)
        for part, block in self.blocks(users):
            if hide_clicked:
                block = block.copy()
                hide(block, self.clicks, users[part])
            top_items[part] = best_first(block, users[part], k)
            top_scores[part] = np.take_along_axis(block, top_items[part], axis=1)
        top_items[np.isneginf(top_scores)] = -1
        return top_items, top_scores

    def similar_items(self, item: Hashable, k: int = 10) -> "pl.DataFrame":
        """The k items whose vectors point the same way: columns item, rank, similarity."""
        import polars as pl

        vectors = self.parameters.get("item_factors")
        if vectors is None:
            raise InputError(f"{self.method.name} has no item vectors to compare")
        if not 1 <= k < len(vectors):
            raise InputError(f"k must be between 1 and {len(vectors) - 1} other items, got {k}")
        index = int(self._known([item], "item")[0])
        lengths = np.linalg.norm(vectors, axis=1)
        similarity = vectors @ vectors[index] / np.maximum(lengths * lengths[index], 1e-12)
        similarity[index] = -np.inf
        order = np.argsort(-similarity, kind="stable")[:k]
        return pl.DataFrame(
            {
                "item": column(self.item_ids.values[order]),
                "rank": pl.Series(np.arange(1, k + 1, dtype=np.int32)),
                "similarity": pl.Series(similarity[order].astype(np.float32)),
            }
        )

    def save(self, folder: str | Path) -> None:
        """Write the model as a folder of safetensors and JSON, whole or not at all."""
        from unexposed.storage import save

        save(self, Path(folder))
        if self.checkpoint is not None:
            remove(self.checkpoint)

    def _exposure_of(self, rows: Indices, items: Indices) -> NDArray[np.float32]:
        out = np.empty(items.shape, dtype=np.float32)
        of = self.method.exposure
        for part, block in blocks(lambda u: of(self.parameters, u), rows, self.clicks):
            out[part] = np.take_along_axis(block, items[part].clip(min=0), axis=1)
        return out

    def _known(self, raw: Sequence[Hashable], what: str) -> Indices:
        if isinstance(raw, str | bytes):
            raise InputError(f"give a list of {what} ids, got the text {raw!r}")
        ids = self.user_ids if what == "user" else self.item_ids
        found = ids.index(raw)
        if (found < 0).any():
            unknown = [r for r, index in zip(raw, found, strict=True) if index < 0]
            shown = ", ".join(repr(r) for r in unknown[:3]) + (", …" if len(unknown) > 3 else "")
            raise InputError(f"the model was never trained on {what} {shown}")
        return found


def blocks(score: Any, users: Indices, clicks: Clicks) -> Iterator[tuple[slice, Block]]:
    """Scores by blocks of users, so that users × items is never held."""
    size = max(1, BLOCK_ENTRIES // max(clicks.n_items, 1))
    for start in range(0, len(users), size):
        part = slice(start, min(start + size, len(users)))
        yield part, score(users[part])


def hide(block: Block, clicks: Clicks, users: Indices) -> None:
    """Set the score of every clicked pair of the block to −∞, in place."""
    start, end = clicks.user_start[users], clicks.user_start[users + 1]
    lengths = end - start
    rows = np.repeat(np.arange(len(users)), lengths)
    offsets = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    block[rows, clicks.items[np.repeat(start, lengths) + offsets]] = -np.inf


def tie_break(users: NDArray[Any], items: NDArray[Any]) -> NDArray[np.uint64]:
    """The order of equally scored items: a fixed hash of the pair, smaller first.

    It knows nothing of popularity or of the order of the catalogue, and is the same for every
    method, so that ties favour none.
    """
    return pair_hash(users, items, salt=0x5EED)


def pair_hash(users: NDArray[Any], items: NDArray[Any], *, salt: int) -> NDArray[np.uint64]:
    """Evenly spread 64-bit numbers, one for each pair (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        x = np.asarray(users).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = x + np.asarray(items).astype(np.uint64) * np.uint64(0xD1B54A32D192ED03)
        x = x + np.uint64(salt % 2**64) * np.uint64(0x8CB92BA72F3D8DD7)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x


def best_first(block: Block, users: Indices, k: int) -> Indices:
    """The k best columns of each row, best first, ties by `tie_break`."""
    n_items = block.shape[1]
    # everything at least as good as the k-th best; a row has more than k of these only with ties
    threshold = np.partition(block, n_items - k, axis=1)[:, n_items - k]
    rows, items = np.nonzero(block >= threshold[:, None])
    order = np.lexsort((tie_break(users[rows], items), -block[rows, items], rows))
    first = np.searchsorted(rows, np.arange(len(users)))  # rows come sorted
    return items[order][first[:, None] + np.arange(k)].astype(np.int32)


def column(values: NDArray[Any]) -> "pl.Series":
    """Raw ids as a polars column, of a native type where they have one."""
    import polars as pl

    if values.dtype != object:
        return pl.Series(values)
    kinds = {type(v) for v in values.tolist()}
    if len(kinds) == 1 and kinds <= {str, float, bool}:
        return pl.Series(values.tolist())
    if kinds == {int}:  # beyond int64, as hashes of 64 bits without a sign are
        wide = pl.UInt64 if min(values) >= 0 and max(values) < 2**64 else pl.Int128
        if min(values) >= -(2**127) and max(values) < 2**127:
            return pl.Series(values.tolist(), dtype=wide)
    return pl.Series(values.tolist(), dtype=pl.Object)

"""The contract: a method holds settings and fits; the model it gives scores and recommends."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray

from unexposed import progress as show
from unexposed import serving
from unexposed import settings as checks
from unexposed.checkpoint import EVERY, Checkpoint, fingerprint, remove
from unexposed.data import Clicks, Ids, Indices
from unexposed.errors import InputError
from unexposed.rules import Rules

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
    start: Parameters | None = None  # of an earlier model, whose users and items come first

    def given(self) -> set[str]:
        return {f.name for f in fields(self) if getattr(self, f.name) is not None}


@dataclass(frozen=True)
class Recommender(ABC):
    """A method and its settings; `fit` gives a model and changes nothing here."""

    name: ClassVar[str]
    takes: ClassVar[frozenset[str]] = frozenset()  # the parts of Side it can use
    # what a score is: the logit of the relevance, the relevance itself, or only an order
    scale: ClassVar[Literal["logit", "probability", "order"]] = "order"

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
        if not 0 <= seed < 2**63:
            raise InputError(f"seed must be between 0 and 2^63 − 1, got {seed}")
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
        if given := sorted(side.given() - {"start"}):
            facts = facts | {"side": given}
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

    def user_rows(
        self, parameters: Parameters, clicks: Clicks, *, n_clicks: int, epochs: int
    ) -> Parameters:
        """What is held of each user of these clicks, learned from them alone (see `fold_in`).

        `n_clicks` and `epochs` are those of the training that made the parameters.
        """
        del parameters, clicks, n_clicks, epochs
        raise InputError(f"{self.name} cannot fold in users: fit it again with their clicks")

    def pair_exposure(
        self, parameters: Parameters, users: Indices, items: Indices
    ) -> NDArray[np.float32]:
        """The exposure of each pair; from whole rows, where a method knows no shorter way."""
        return pairs_from_rows(lambda part: self.exposure(parameters, part), users, items)


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted method, spoken to in raw ids."""

    method: Recommender
    parameters: Parameters
    clicks: Clicks  # all it has seen, held-out ones included
    facts: dict[str, Any]
    checkpoint: Path | None = None  # of its training; not needed once the model is saved
    verify: Callable[[], None] = lambda: None  # compares what lies in a file with its checksums

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
        rows, columns = self._pairs(users, items)
        return pairs_from_rows(lambda u: self.method.scores(self.parameters, u), rows, columns)

    def exposure(self, users: Sequence[Hashable], items: Sequence[Hashable]) -> NDArray[np.float32]:
        """The learned or given exposure of each pair of raw ids."""
        if self.method.exposure(self.parameters, np.zeros(0, dtype=np.int32)) is None:
            raise InputError(f"{self.method.name} has no exposure model")
        return self.method.pair_exposure(self.parameters, *self._pairs(users, items))

    def recommend(
        self,
        users: serving.RawIds,
        k: int = 10,
        *,
        rules: Rules | None = None,
        progress: show.Progress | None = None,
    ) -> "pl.DataFrame":
        """The k best items for each user: columns user, item, rank, score, and what is known of
        relevance and exposure.

        The score is what the item was ranked by, after a popularity penalty. A user for whom fewer
        than k items remain gets fewer. With unknown="popular" a column `known` is false where the
        list is the one for strangers.
        """
        import polars as pl

        with progress or show.on_terminal(otherwise=show.Silent) as told:
            tables = serving.recommend(self, users, k, rules or Rules(), progress=told)
            return pl.concat(list(tables))

    def write_recommendations(
        self,
        path: str | Path,
        users: serving.RawIds | None = None,
        k: int = 10,
        *,
        rules: Rules | None = None,
        progress: show.Progress | None = None,
    ) -> int:
        """Write them for these users, else for all, as CSV, TSV or Parquet; how many there are.

        Memory does not grow with the users. The file is written whole or not at all.
        """
        from unexposed.writing import write_tables

        wanted = self.user_ids.values if users is None else users
        with progress or show.on_terminal(otherwise=show.Silent) as told:
            tables = serving.recommend(self, wanted, k, rules or Rules(), progress=told)
            return write_tables(tables, Path(path))

    def top(
        self, users: Indices, k: int, *, hide_clicked: bool = True
    ) -> tuple[Indices, NDArray[np.float32]]:
        """The k best items of each user by index, −1 where none is left, and their scores."""
        serving.check_k(k, len(self.item_ids))
        server = serving.Server.of(self, Rules(hide_clicked=hide_clicked))
        items = np.empty((len(users), k), dtype=np.int32)
        scores = np.empty((len(users), k), dtype=np.float32)
        for part in serving.parts(len(users), len(self.item_ids)):
            items[part], scores[part] = server.top(users[part], k)
        return items, scores

    def similar_items(self, item: Hashable, k: int = 10) -> "pl.DataFrame":
        """The k items whose vectors point the same way: columns item, rank, similarity."""
        return serving.similar(self, "item", item, k)

    def similar_users(self, user: Hashable, k: int = 10) -> "pl.DataFrame":
        """The k users whose vectors point the same way: columns user, rank, similarity."""
        return serving.similar(self, "user", user, k)

    def fold_in(self, clicks: Clicks) -> "Model":
        """The model with the users of these clicks, new ones and known ones with newer clicks.

        Nothing but their own vectors is learned, in milliseconds a user; `update` learns all.
        """
        from unexposed.fold_in import fold_in

        return fold_in(self, clicks)

    def update(
        self,
        clicks: Clicks,
        *,
        epochs: int | None = None,
        seed: int = 0,
        side: Side | None = None,
        progress: show.Progress | None = None,
    ) -> "Model":
        """The model after some epochs on all clicks, these newer ones included (see `update`)."""
        from unexposed.update import update

        return update(self, clicks, epochs=epochs, seed=seed, side=side, progress=progress)

    def recommend_for(
        self, items: Sequence[Hashable], k: int = 10, *, rules: Rules | None = None
    ) -> "pl.DataFrame":
        """The k best items for somebody who clicked these, folded in and forgotten."""
        from unexposed.fold_in import user_of

        one = user_of(self, items)
        (table,) = serving.recommend(one, [0], k, rules or Rules(), whole=self)
        return table.drop("user")

    def save(self, folder: str | Path) -> None:
        """Write the model as a folder of safetensors and JSON, whole or not at all."""
        from unexposed.storage import save

        save(self, Path(folder))
        if self.checkpoint is not None:
            remove(self.checkpoint)

    def known(self, raw: serving.RawIds, what: Literal["user", "item"]) -> Indices:
        """The index of each raw id; one that the model was never trained on is refused."""
        if isinstance(raw, str | bytes):
            raise InputError(f"give a list of {what} ids, got the text {raw!r}")
        ids = self.user_ids if what == "user" else self.item_ids
        found = ids.index(raw)
        if (found < 0).any():
            unknown = [r for r, index in zip(raw, found, strict=True) if index < 0]
            shown = ", ".join(repr(r) for r in unknown[:3]) + (", …" if len(unknown) > 3 else "")
            raise InputError(f"the model was never trained on {what} {shown}")
        return found

    def _pairs(
        self, users: Sequence[Hashable], items: Sequence[Hashable]
    ) -> tuple[Indices, Indices]:
        if len(users) != len(items):
            raise InputError(f"got {len(users)} users for {len(items)} items: give pairs")
        return self.known(users, "user"), self.known(items, "item")


def blocks(score: Any, users: Indices, clicks: Clicks) -> Iterator[tuple[slice, Block]]:
    """Scores by blocks of users, so that users × items is never held."""
    size = max(1, BLOCK_ENTRIES // max(clicks.n_items, 1))
    for start in range(0, len(users), size):
        part = slice(start, min(start + size, len(users)))
        yield part, score(users[part])


def pairs_from_rows(rows: Any, users: Indices, items: Indices) -> NDArray[np.float32]:
    """The entry of each pair, from a function that gives whole rows, by blocks of users."""
    distinct, place = np.unique(users, return_inverse=True)
    order = np.argsort(place, kind="stable")
    size = max(1, BLOCK_ENTRIES // max(rows(users[:0]).shape[1], 1))
    out = np.empty(len(users), dtype=np.float32)
    for start in range(0, len(distinct), size):
        first, stop = np.searchsorted(place, (start, start + size), sorter=order)
        here = order[first:stop]
        out[here] = rows(distinct[start : start + size])[place[here] - start, items[here]]
    return out


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
    from unexposed import loops

    return loops.best(np.require(block, requirements=["C", "W"]), users, k)[0]


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

"""Recommendations as tables, one for each block of users."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from unexposed import progress as show
from unexposed.data.ids import Ids, column
from unexposed.data.pairs import Indices
from unexposed.errors import InputError, plain
from unexposed.model.filters import Candidates, Rules, Unknown, hide
from unexposed.ranking.blocks import Block, in_whole, parts
from unexposed.ranking.rank import best

if TYPE_CHECKING:
    import polars as pl

    from unexposed.model.model import Model
    from unexposed.model.recommender import Recommender

Array = NDArray[Any]
RawIds = Sequence[Hashable] | NDArray[Any]

SERVED_ENTRIES = 16_000_000  # scores held at a time: fast products, bounded memory
SAMPLE_USERS = 2_000  # averaged for the list that unknown users get
LEAST = 1e-6  # a mean relevance is kept in [1e-6, 1 − 1e-6]: its logit stays finite


def evenly_spaced(n_users: int) -> Indices:
    """The users over whom `Average` takes the mean: all, or 2,000 of them."""
    return np.unique(np.linspace(0, n_users - 1, min(SAMPLE_USERS, n_users)).astype(np.int32))


@dataclass(frozen=True, eq=False)
class Average:
    """Scores and exposures for unknown users: the mean of each item over the model's users.

    The mean is taken of relevance, and turned back into a score; if scores only order items, it is
    taken of the scores. If there are many users, it is taken over evenly spaced ones.
    """

    score: Array
    exposure: Array  # meaningless if the method has no exposure model

    @staticmethod
    def of(model: "Model") -> "Average":
        n_users, n_items = model.clicks.n_users, model.clicks.n_items
        users = evenly_spaced(n_users)
        method = model.method
        score, shown = np.zeros(n_items), np.zeros(n_items)
        for part in parts(len(users), n_items, entries=SERVED_ENTRIES):
            scores = model.scores(users[part])
            found = relevance(method, scores)
            score += (scores if found is None else found).sum(axis=0, dtype=np.float64)
            exposure = method.exposure(model.parameters, users[part])
            shown += 0 if exposure is None else exposure.sum(axis=0, dtype=np.float64)
        score, shown = score / len(users), shown / len(users)
        if method.scale == "logit":
            score = logit(score.clip(LEAST, 1 - LEAST))
        return Average(score.astype(np.float32), shown.astype(np.float32))


@dataclass(frozen=True, eq=False)
class Server:
    """A model and rules, ready to serve users by index; n_users stands for an unknown user."""

    model: "Model"
    rules: Rules
    whole: "Model"  # decides what is popular; `model` may hold only some of its users
    offset: NDArray[np.float32] | None  # taken from the score of each item; ∞: never recommended
    find_average: Callable[["Model"], Average] = Average.of  # or one that was computed before

    @staticmethod
    def of(
        model: "Model",
        rules: Rules,
        *,
        whole: "Model | None" = None,
        find_average: Callable[["Model"], Average] = Average.of,
    ) -> "Server":
        if rules.minimum_exposure > 0 and not model.has_exposure:
            name = model.method.name
            raise InputError(f"{name} has no exposure model, so it cannot apply minimum_exposure")
        whole = whole or model
        return Server(model, rules, whole, rules.offset(whole.clicks), find_average)

    @cached_property
    def item_names(self) -> Callable[[Indices], "pl.Series"]:
        return names(self.model.item_ids)

    @cached_property
    def average(self) -> Average:
        """Serves unknown users; computed when the first one comes."""
        return self.find_average(self.whole)

    def top(
        self,
        rows: Indices,
        k: int,
        pairs: Candidates | None = None,
        *,
        threads: int | None = None,
    ) -> tuple[Indices, NDArray[np.float32]]:
        """The k best items of each user, −1 where none is left, and the scores that rank them."""
        block = _own(self._scores(rows))
        if self.offset is not None:
            block -= self.offset
        if pairs is not None:
            block = pairs.only(block)
        if self.rules.hide_clicked:
            hide(block, self.model.clicks, rows)
        if self.rules.minimum_exposure > 0:
            block[self._exposures(rows) < self.rules.minimum_exposure] = -np.inf
        return best(block, self._names(rows), k, threads=threads)

    def exposure(self, rows: Indices, items: Indices) -> Array:
        """The exposure of each pair."""
        known = rows < self.model.clicks.n_users
        out = np.empty(len(rows), dtype=np.float32)
        method, parameters = self.model.method, self.model.parameters
        out[known] = method.pair_exposure(parameters, rows[known], items[known])
        if not known.all():
            out[~known] = self.average.exposure[items[~known]]
        return out

    def table(
        self, users: "pl.Series", rows: Indices, items: Indices, scores: Array
    ) -> "pl.DataFrame":
        """The chosen items as a table, with relevance and exposure if the method has them."""
        import polars as pl

        at, place = np.nonzero(items >= 0)
        items, scores = items[at, place], scores[at, place]
        columns = {
            "user": users.gather(at),
            "item": self.item_names(items),
            "rank": pl.Series((place + 1).astype(np.int32)),
            "score": pl.Series(scores),
        }
        unpenalised = scores if self.offset is None else scores + self.offset[items]
        found = relevance(self.model.method, unpenalised)
        if found is not None:
            columns["relevance"] = pl.Series(found)
        if self.model.has_exposure:
            columns["exposure"] = pl.Series(self.exposure(rows[at], items))
        if self.rules.unknown == "popular":
            columns["known"] = pl.Series(rows[at] < self.model.clicks.n_users)
        return pl.DataFrame(columns)

    def _names(self, rows: Indices) -> Indices:
        """What breaks the ties of each user: the index in the whole log, n_users if unknown."""
        share, n_own = self.model.clicks.share, self.model.clicks.n_users
        if share is None:
            return rows
        known = rows < n_own
        names = np.full(len(rows), share.n_users, dtype=np.int32)
        names[known] = in_whole(self.model.clicks, rows[known])
        return names

    def _scores(self, rows: Indices) -> Block:
        return self._rows(self._alike, rows, lambda: self.average.score)

    def _alike(self, rows: Indices) -> Block:
        """Scores whose last bits do not depend on how many users are asked for.

        BLAS sums the product of one row in another order than the product of several.
        """
        if len(rows) != 1:
            return self.model.scores(rows)
        return self.model.scores(np.repeat(rows, 2))[:1]

    def _exposures(self, rows: Indices) -> Block:
        def exposure(users: Indices) -> Any:
            return self.model.method.exposure(self.model.parameters, users)

        return self._rows(exposure, rows, lambda: self.average.exposure)

    def _rows(self, of: Any, rows: Indices, average: Callable[[], Array]) -> Block:
        """The block of these users, with the average in the rows of unknown ones."""
        known = rows < self.model.clicks.n_users
        if known.all():
            return of(rows)
        out = np.empty((len(rows), self.model.clicks.n_items), dtype=np.float32)
        out[known] = of(rows[known])
        out[~known] = average()
        return out


def recommend(
    model: "Model",
    users: RawIds,
    k: int,
    rules: Rules,
    *,
    whole: "Model | None" = None,
    progress: show.Progress | None = None,
) -> Iterator["pl.DataFrame"]:
    """The k best items of each user as tables, one for each block of users.

    `whole` is the model that decides what is popular, if this one holds only some users.
    """
    check_k(k, model.clicks.n_items)
    if not isinstance(rules, Rules):
        raise InputError(f"rules must be Rules, got {type(rules).__name__}")
    ids, rows = _rows(model, users, rules.unknown)
    server = Server.of(model, rules, whole=whole)
    pairs = None
    if rules.candidates is not None:
        pairs = Candidates.of(rules.candidates, ids, model.item_ids)
    raw = column(ids.values)
    progress = progress or show.Silent()
    served = list(parts(len(rows), model.clicks.n_items, entries=SERVED_ENTRIES))
    for part in served or [slice(0, 0)]:  # without users: one table without rows
        items, scores = server.top(rows[part], k, None if pairs is None else pairs.part(part))
        yield server.table(raw[part], rows[part], items, scores)
        progress.count("users", part.stop, len(rows))


def similar(model: "Model", item: Hashable, k: int) -> "pl.DataFrame":
    """The k items whose vectors point the same way, by the cosine of the angle."""
    import polars as pl

    found = model.method.tastes(model.parameters)
    if found is None:
        raise InputError(f"{model.method.name} has no item vectors to compare")
    vectors = found.items
    if not isinstance(k, int | np.integer) or not 1 <= k < len(vectors):
        raise InputError(f"k must be between 1 and {len(vectors) - 1} other items, got {k}")
    index = model.known([item], "item")
    lengths = np.linalg.norm(vectors, axis=1)
    cosine = vectors @ vectors[index[0]] / np.maximum(lengths * lengths[index[0]], 1e-12)
    block = cosine.astype(np.float32)[None, :]
    block[0, index] = -np.inf
    others, cosines = best(block, index, k)
    return pl.DataFrame(
        {
            "item": names(model.item_ids)(others[0]),
            "rank": pl.Series(np.arange(1, k + 1, dtype=np.int32)),
            "similarity": pl.Series(cosines[0]),
        }
    )


def relevance(method: "Recommender", scores: Array) -> Array | None:
    """The estimated relevance of scores; None if they only order items."""
    if method.scale == "order":
        return None
    return expit(scores) if method.scale == "logit" else scores


def names(ids: Ids) -> Callable[[Indices], "pl.Series"]:
    """A function from indices to a column of raw ids, of one type whatever the indices."""
    import polars as pl

    if ids.are_integers:
        return lambda indices: pl.Series(ids.values[indices])
    if ids.are_texts:
        return lambda indices: pl.Series(ids.values[indices].tolist(), dtype=pl.String)
    return column(ids.values).gather


def listed(raw: Any, what: Literal["user", "item"]) -> RawIds:
    """These raw ids as a list or an array; refuses what is neither many ids nor ids at all."""
    if isinstance(raw, str | bytes):
        raise InputError(f"give a list of {what} ids, got the text {raw!r}")
    if isinstance(raw, np.ndarray) and raw.ndim == 1:
        return raw
    if not isinstance(raw, Iterable) or hasattr(raw, "columns"):
        raise InputError(f"give a list of {what} ids, got {_spoken(raw)}")
    ids = list(raw)
    for one in ids:
        if not isinstance(one, Hashable):
            raise InputError(f"the {type(one).__name__} {_spoken(one)} cannot be an id")
    return ids


def _spoken(given: object) -> str:
    return type(given).__name__ if hasattr(given, "columns") else plain(repr(given), 40)


def check_k(k: int, n_items: int) -> None:
    if not isinstance(k, int | np.integer) or not 1 <= k <= n_items:
        raise InputError(f"k must be between 1 and {n_items} items, got {k}")


def _own(block: Block) -> Block:
    """The block itself if it may be overwritten, else a copy."""
    mine = block.flags.owndata and block.flags.c_contiguous and block.dtype == np.float32
    return block if mine else np.array(block, dtype=np.float32, order="C")


def _rows(model: "Model", users: RawIds, unknown: Unknown) -> tuple[Ids, Indices]:
    """The users to serve and their indices; n_users stands for a user the model does not know."""
    if unknown == "refuse":
        rows = model.known(users, "user")
        return Ids(model.user_ids.values[rows]), rows
    raw = listed(users, "user")
    rows = model.user_ids.index(raw)
    ids = Ids.of(raw)
    if unknown == "skip":
        return Ids(ids.values[rows >= 0]), rows[rows >= 0]
    return ids, np.where(rows < 0, model.clicks.n_users, rows).astype(np.int32)

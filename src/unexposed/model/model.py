"""A fitted method, addressed by raw ids."""

import os
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from unexposed import progress as show
from unexposed.cards import Card, Curve, HasCard
from unexposed.data.clicks import Clicks
from unexposed.data.features import Encoding, Features, Role
from unexposed.data.ids import Ids
from unexposed.data.pairs import Indices
from unexposed.data.write import write_tables
from unexposed.errors import InputError, as_path
from unexposed.model import fold_in, lists, partitions, recommend, update
from unexposed.model.filters import Rules
from unexposed.model.recommend import RawIds
from unexposed.model.save import save
from unexposed.ranking.blocks import Block, blocks, pairs_from_rows, parts
from unexposed.ranking.verdict import Verdict, each_of_facts, joined
from unexposed.settings import changed
from unexposed.training.checkpoint import remove
from unexposed.training.side import Parameters, Side
from unexposed.workers import together

if TYPE_CHECKING:
    import polars as pl

    from unexposed.model.recommender import Recommender


@dataclass(frozen=True, eq=False)
class Model(HasCard):
    """A fitted method, addressed by raw ids."""

    method: "Recommender"
    parameters: Parameters
    clicks: Clicks  # all clicks, held-out ones included
    facts: dict[str, Any]
    checkpoint: Path | None = None  # of its training; not needed once the model is saved

    def __repr__(self) -> str:
        return f"Model({self._line()})"

    def _line(self) -> str:
        log = self.clicks
        sizes = f"{log.n_users:,} users, {log.n_items:,} items, {len(log):,} clicks"
        epoch = self.facts.get("best_epoch")
        chosen = f", epoch {epoch} of {self.facts.get('epochs_run')}" if epoch else ""
        return f"{self.method.name}: {sizes}{chosen}"

    def card(self) -> Card:
        """The log it learned, how its training went, and its settings."""
        facts = {name: self.facts.get(name) for name in ("best_value", "ended", "seconds")}
        said = {"best_value": "held-out quality", "ended": "training ended", "seconds": "seconds"}
        epoch, given = self.facts.get("best_epoch"), changed(self.method)
        curves = [
            Curve(title, self.facts.get(name) or [], epoch - 1 if epoch else None)
            for name, title in (
                ("held_out", "held-out quality by epoch, the kept one marked"),
                ("losses", "loss by epoch, the kept one marked"),
            )
        ]
        return Card(
            f"Model: {self._line()}",
            ({} if self.verdict is None else {"verdict": str(self.verdict)})
            | {said[name]: value for name, value in facts.items() if value is not None}
            | {"settings": ", ".join(f"{k}={v}" for k, v in given.items()) or "the defaults"},
            curves=curves,
        )

    @property
    def verdict(self) -> Verdict | None:
        """Whether the model was above the popular list on held-out clicks, in a sentence.

        `mf` follows where `fit` was told to train it beside. None where no clicks were held out,
        or too few. With `refit`, this is the model of the chosen epoch, before the training on all
        clicks.
        """
        return joined(self.verdicts)

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdict on held-out clicks beside each rival, a sentence each."""
        return each_of_facts(self.method.name, self.facts)

    @property
    def user_ids(self) -> Ids:
        return self.clicks.user_ids

    @property
    def item_ids(self) -> Ids:
        return self.clicks.item_ids

    @property
    def has_exposure(self) -> bool:
        return self.method.exposure(self.parameters, np.zeros(0, dtype=np.int32)) is not None

    def blocks(self, users: Indices) -> Iterator[tuple[slice, Block]]:
        """Scores of all items for these users (indices), a bounded part at a time."""
        return blocks(self.scores, users, self.clicks)

    def scores(self, users: Indices) -> Block:
        """The score of every item for each of these users (indices)."""
        return self.method.scores(self.parameters, users, self.clicks)

    def score(self, users: Sequence[Hashable], items: Sequence[Hashable]) -> NDArray[np.float32]:
        """The score of each pair of raw ids."""
        rows, columns = self._pairs(users, items)
        return pairs_from_rows(self.scores, rows, columns)

    def exposure(self, users: Sequence[Hashable], items: Sequence[Hashable]) -> NDArray[np.float32]:
        """The learned or given exposure of each pair of raw ids."""
        if not self.has_exposure:
            raise InputError(f"{self.method.name} has no exposure model")
        return self.method.pair_exposure(self.parameters, *self._pairs(users, items))

    def recommend(
        self,
        users: RawIds,
        k: int = 10,
        *,
        rules: Rules | None = None,
        progress: show.Progress | None = None,
    ) -> "pl.DataFrame":
        """The k best items for each user: columns user, item, rank, score, and relevance and
        exposure if the method models them.

        Items are ranked by the score, which includes the popularity penalty. Users with fewer than
        k items left get fewer. With unknown="popular", a column `known` is false for unknown users.
        """
        import polars as pl

        with progress or show.on_terminal(otherwise=show.Silent) as shown:
            return pl.concat(list(self.recommendations(users, k, rules=rules, progress=shown)))

    def write_recommendations(
        self,
        path: str | Path,
        users: RawIds | None = None,
        k: int = 10,
        *,
        rules: Rules | None = None,
        progress: show.Progress | None = None,
    ) -> int:
        """Write recommendations as CSV, TSV or Parquet, by default for all users; gives the rows.

        Memory use does not grow with the number of users. The write is atomic. "FOLDER/" gets a
        Parquet file for each partition of the users; workers call this together, and each writes
        the files of its own users.
        """
        wanted = self.user_ids.values if users is None else users
        with progress or show.on_terminal(otherwise=show.Silent) as shown:
            if isinstance(path, str) and path.endswith(("/", os.sep)):
                as_text = not self.user_ids.are_sortable
                given: dict[str, Any] = {"as_text": as_text, "progress": shown}
                with together() as workers:
                    parts = lists.parts_of(self, users, workers)
                    given["workers"] = workers
                    return lists.write_lists(parts, Path(path), k, rules or Rules(), **given)
            tables = self.recommendations(wanted, k, rules=rules, progress=shown)
            return write_tables(tables, as_path(path, "the file to write"))

    def top(
        self, users: Indices, k: int, *, hide_clicked: bool = True
    ) -> tuple[Indices, NDArray[np.float32]]:
        """The k best items of each user by index, −1 where none is left, and their scores."""
        recommend.check_k(k, len(self.item_ids))
        server = recommend.Server.of(self, Rules(hide_clicked=hide_clicked))
        items = np.empty((len(users), k), dtype=np.int32)
        scores = np.empty((len(users), k), dtype=np.float32)
        for part in parts(len(users), len(self.item_ids), entries=recommend.SERVED_ENTRIES):
            items[part], scores[part] = server.top(users[part], k)
        return items, scores

    def similar_items(self, item: Hashable, k: int = 10) -> "pl.DataFrame":
        """The k items whose vectors point the same way: columns item, rank, similarity."""
        return recommend.similar(self, item, k)

    def encoding(self, role: Role) -> Encoding:
        """How features of users or items were encoded in the training, for `read_features`."""
        found = self.facts.get("encodings", {}).get(role)
        if found is None:
            raise InputError(
                f"this model was trained without {role} features by raw id: leave them out, or fit "
                f"it again with {role}_features"
            )
        try:
            return Encoding.from_json(found)
        except ValueError as error:
            raise InputError(f"the features of this model are damaged: {error}") from error

    def fold_in(
        self, clicks: Clicks, *, user_features: Features | NDArray[Any] | None = None
    ) -> "Model":
        """The model with the users of these clicks added, or learned again if it knows them.

        Only their vectors are learned, in milliseconds each; `update` trains everything. With
        features, read with the model's `encoding`, each user has an exposure of their own.
        """
        return fold_in.fold_in(self, clicks, user_features)

    def update(
        self,
        clicks: Clicks,
        *,
        epochs: int | None = None,
        seed: int = 0,
        side: Side | None = None,
        progress: show.Progress | None = None,
    ) -> "Model":
        """Train for some more epochs on all clicks, these newer ones included (see `update`)."""
        return update.update(self, clicks, epochs=epochs, seed=seed, side=side, progress=progress)

    def recommend_for(
        self, items: Sequence[Hashable], k: int = 10, *, rules: Rules | None = None
    ) -> "pl.DataFrame":
        """The k best items for someone who clicked these; the model does not change."""
        one = fold_in.user_of(self, recommend.listed(items, "item"))
        (table,) = recommend.recommend(one, [0], k, rules or Rules(), whole=self)
        return table.drop("user")

    def save(self, path: str | PathLike[str], *, partitioned: bool | None = None) -> None:
        """Write the model atomically as one safetensors file: `shop` is `shop.safetensors`.

        `partitioned` adds a file for each partition of the users, which `load_partitions` opens
        one by one. A model that workers divide is always written so; all of them call this.
        """
        save(self, path, partitioned=partitioned)
        if self.checkpoint is not None:
            remove(self.checkpoint)

    def whole(self) -> "Model":
        """The model with the users of all workers; itself, if it was not divided among them.

        Every worker calls this, and needs the memory.
        """
        return self if self.clicks.share is None else partitions.gathered(self)

    def known(self, raw: RawIds, what: Literal["user", "item"]) -> Indices:
        """The index of each raw id; refuses ids that the model was never trained on."""
        raw = recommend.listed(raw, what)
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
        rows, columns = self.known(users, "user"), self.known(items, "item")
        if len(rows) != len(columns):
            raise InputError(f"got {len(rows)} users for {len(columns)} items: give pairs")
        return rows, columns

    def of_users(
        self, clicks: Clicks, *, user_features: Features | NDArray[Any] | None = None
    ) -> "Model":
        """A model of only the users of these clicks, folded in; `fold_in` keeps the others too."""
        known = fold_in.known_clicks(self, clicks)
        rows = fold_in.features_of(known, clicks.user_ids, user_features)
        return fold_in.of_users(self, known, rows)

    def recommendations(
        self,
        users: RawIds,
        k: int = 10,
        *,
        rules: Rules | None = None,
        whole: "Model | None" = None,
        progress: show.Progress | None = None,
    ) -> "Iterator[pl.DataFrame]":
        """The table of `recommend` in parts, one for each block of users.

        `whole` is the model that decides what is popular, if this one holds only some users.
        """
        return recommend.recommend(self, users, k, rules or Rules(), whole=whole, progress=progress)

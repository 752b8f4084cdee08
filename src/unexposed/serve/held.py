"""The model that the service holds: loaded whole, checked, and ready to serve."""

import hashlib
import os
from collections.abc import Hashable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Indices
from unexposed.data.ids import Ids
from unexposed.data.read import read_titles
from unexposed.errors import InputError, plain
from unexposed.files.archive import ARRAYS
from unexposed.methods import load
from unexposed.model import fold_in
from unexposed.model.filters import Rules
from unexposed.model.model import Model
from unexposed.model.recommend import Average, Server, relevance
from unexposed.model.save import MODEL
from unexposed.serve.finding import Names
from unexposed.serve.parameters import Missing

ATTEMPTS = 5  # to load a folder that is replaced meanwhile
SERVERS = 32  # sets of options whose offsets are kept
Role = Literal["user", "item"]
Identity = tuple[tuple[int, ...], ...]


class Options(NamedTuple):
    """What a request may change about a list; requests with equal options are served together."""

    hide_clicked: bool = True
    minimum_exposure: float = 0.0
    popularity_penalty: float = 0.0

    @property
    def rules(self) -> Rules:
        return Rules(**self._asdict())


class Chosen(NamedTuple):
    """Items of one list, best first, with their figures; None where the method has none."""

    items: Indices
    scores: NDArray[np.float32]
    relevance: NDArray[np.float32] | None
    exposure: NDArray[np.float32] | None


@dataclass(frozen=True)
class Source:
    """Where a model lies, and the titles of its items."""

    folder: Path
    titles: Path | None = None
    title: str | None = None  # column

    def identity(self) -> Identity | None:
        """What tells two models at this place apart without reading them; None: there is none."""
        try:
            stats = [os.stat(self.folder / name) for name in (MODEL.about, ARRAYS)]
        except OSError:
            return None
        return tuple((s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns) for s in stats)


@dataclass(frozen=True, eq=False)
class Held:
    """A model with what serving needs beside it; it never changes."""

    model: Model
    serving: Model  # the same with each item's vector as a column: products are faster
    titles: dict[int, str] | None  # by index of the item
    checksum: str
    saved: str  # ISO time
    folds_in: bool
    generation: int = 1

    @cached_property
    def has_exposure(self) -> bool:
        return self.model.has_exposure

    @cached_property
    def average(self) -> Average:
        """Serves unknown users; takes seconds, once."""
        return Average.of(self.serving)

    @cached_property
    def server(self) -> Any:
        """A function from options to what serves them."""
        return lru_cache(maxsize=SERVERS)(self._server)

    def _server(self, options: Options) -> Server:
        return Server.of(self.serving, options.rules, find_average=lambda _: self.average)

    def lists(self, rows: Indices, k: int, options: Options) -> list[Chosen]:
        """The k best items of each user; the row n_users stands for an unknown one."""
        server = self.server(options)
        items, scores = server.top(rows, min(k, self.model.clicks.n_items), threads=1)
        return chosen(server, self._plain, rows, items, scores)

    @cached_property
    def _plain(self) -> Server:
        return Server.of(self.model, Rules(), find_average=lambda _: self.average)

    def list_for(self, items: Indices, k: int, options: Options) -> Chosen:
        """The k best items for somebody who clicked these."""
        one = fold_in.user_of(self.model, self.model.item_ids.values[items])
        server = Server.of(one, options.rules, whole=self.model)
        row = np.zeros(1, dtype=np.int32)
        best, scores = server.top(row, min(k, self.model.clicks.n_items), threads=1)
        return chosen(server, server, row, best, scores)[0]

    def pairs(self, row: int, items: Indices) -> Chosen:
        """Score, relevance and exposure of a user's pairs with these items."""
        rows = np.full(len(items), row, dtype=np.int32)
        scores = self.serving.scores(np.array([row, row], dtype=np.int32))[0, items]
        exposure = self._plain.exposure(rows, items) if self.has_exposure else None
        return Chosen(items, scores, relevance(self.model.method, scores), exposure)

    def ids(self, role: Role) -> Ids:
        return self.model.user_ids if role == "user" else self.model.item_ids

    def index(self, raw: Hashable, role: Role) -> int:
        """The index of a raw id, by value or else by how it prints; −1 if unknown."""
        ids = self.ids(role)
        if ids.are_integers:
            if isinstance(raw, bool):
                return -1  # true is not the user 1
            raw = ids.parse([raw])[0] if isinstance(raw, str) else raw
        found = int(ids.index([raw])[0])
        if found < 0 and isinstance(raw, str) and not ids.are_sortable:
            return self._by_print(role).get(raw, -1)
        return found

    def known(self, raw: Hashable, role: Role) -> int:
        """The index of a raw id that must be known."""
        found = self.index(raw, role)
        if found < 0:
            raise Missing(f"the model was never trained on {role} {plain(repr(raw), 200)}")
        return found

    def _by_print(self, role: Role) -> dict[str, int]:
        return self._user_prints if role == "user" else self._item_prints

    @cached_property
    def _user_prints(self) -> dict[str, int]:
        return {str(raw): at for at, raw in enumerate(self.model.user_ids.values.tolist())}

    @cached_property
    def _item_prints(self) -> dict[str, int]:
        return {str(raw): at for at, raw in enumerate(self.model.item_ids.values.tolist())}

    def search(self, query: str, role: Role, limit: int) -> list[int]:
        """Indices whose id begins with the query or whose title holds it, most clicked first.

        The one with exactly this id comes before all others.
        """
        order, ids, titles = self._users_by_clicks if role == "user" else self._items_by_clicks
        if not query:
            return order[:limit].tolist()
        places = set(ids.beginning(query, limit))
        if titles is not None:
            places |= set(titles.holding(query, limit))
        found = order[sorted(places)[:limit]].tolist() if places else []
        exact = self.index(query, role)
        return found if exact < 0 else [exact, *(at for at in found if at != exact)][:limit]

    @cached_property
    def _users_by_clicks(self) -> tuple[Indices, Names, None]:
        return *_by_clicks(self.model.clicks.user_counts, self.model.user_ids), None

    @cached_property
    def _items_by_clicks(self) -> tuple[Indices, Names, Names | None]:
        order, ids = _by_clicks(self.model.clicks.item_counts, self.model.item_ids)
        if self.titles is None:
            return order, ids, None
        return order, ids, Names.of([self.titles.get(at, "") for at in order.tolist()])


def _by_clicks(counts: NDArray[np.int64], ids: Ids) -> tuple[Indices, Names]:
    order = np.argsort(-counts, kind="stable").astype(np.int32)
    return order, Names.of([str(raw) for raw in ids.values[order].tolist()])


def chosen(
    server: Server, plain_server: Server, rows: Indices, items: Indices, scores: Any
) -> list[Chosen]:
    """The lists of these users with relevance and exposure; a list ends where no item is left."""
    at, place = np.nonzero(items >= 0)
    flat, worth = items[at, place], scores[at, place]
    unpenalised = worth if server.offset is None else worth + server.offset[flat]
    relevant = relevance(server.model.method, unpenalised)
    exposed = plain_server.exposure(rows[at], flat) if server.model.has_exposure else None
    ends = np.cumsum((items >= 0).sum(axis=1)).tolist()
    parts = [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]
    return [
        Chosen(
            flat[part],
            worth[part],
            None if relevant is None else relevant[part],
            None if exposed is None else exposed[part],
        )
        for part in parts
    ]


def read(source: Source) -> Held:
    """Load the model that lies there, check all of it, and let it make a list."""
    for _ in range(ATTEMPTS):
        before = _document(source.folder)
        try:
            model = load(source.folder, verify=True)
        except InputError:
            if before is None or _document(source.folder) == before:
                raise
            continue
        if before is not None and _document(source.folder) == before:
            return _checked(model, source, *before)
    raise InputError(f"{source.folder} is written again and again; try later")


def _document(folder: Path) -> tuple[str, float] | None:
    """Checksum and time of the JSON document."""
    try:
        path = folder / MODEL.about
        return hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime
    except OSError:
        return None


def _checked(model: Model, source: Source, checksum: str, time: float) -> Held:
    """The model, once it has made a list: what cannot serve is refused before it is swapped in."""
    if min(model.clicks.n_users, model.clicks.n_items) == 0:
        raise InputError(f"{source.folder}: the model knows no users or no items")
    titles = None
    if source.titles is not None:
        titles = read_titles(source.titles, model, title=source.title)
    saved = datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")
    held = Held(model, _by_columns(model), titles, checksum, saved, _folds_in(model))
    held.lists(np.zeros(1, dtype=np.int32), 1, Options())  # compiles what is not compiled yet
    return held


def _by_columns(model: Model) -> Model:
    parameters = {
        name: np.asfortranarray(array) if name == "item_factors" else array
        for name, array in model.parameters.items()
    }
    return replace(model, parameters=parameters)


def _folds_in(model: Model) -> bool:
    """Whether users can be folded in: tried with one click."""
    try:
        fold_in.user_of(model, model.item_ids.values[:1])
    except InputError:
        return False
    return True

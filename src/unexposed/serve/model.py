"""The model that the service answers from: loaded whole, tried, and swapped for a newer one."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from unexposed.data.ids import Ids
from unexposed.data.judged import read_titles
from unexposed.data.pairs import Indices
from unexposed.errors import InputError, plain
from unexposed.methods import load
from unexposed.model import fold_in
from unexposed.model.filters import Rules
from unexposed.model.model import Model
from unexposed.model.recommend import Average, Server
from unexposed.model.save import identity
from unexposed.serve import messages
from unexposed.serve.messages import Entry, Item, Missing, in_json

SECONDS = 1.0  # between two looks at the file
ATTEMPTS = 5  # to load a model that is replaced meanwhile
SERVERS = 32  # sets of options whose offsets are kept
MOST_CLICKS = 500  # of a user that are listed

Role = Literal["user", "item"]
Say = Callable[[str], None]
Identity = tuple[int, ...]
Figures = tuple[Any, Any, Any, Any]  # rank, score, relevance, exposure


class Options(NamedTuple):
    """What a request may change about a list; requests with equal options are served together."""

    hide_clicked: bool = True
    minimum_exposure: float = 0.0
    popularity_penalty: float = 0.0

    @property
    def rules(self) -> Rules:
        return Rules(**self._asdict())


@dataclass(frozen=True)
class Source:
    """Where a model lies, and the titles of its items."""

    path: Path
    titles: Path | None = None
    title: str | None = None  # column

    def identity(self) -> Identity | None:
        """What tells two models at this path apart without reading them; None if there is none."""
        return identity(self.path)


class ServedModel:
    """A model with what serving needs beside it; it never changes."""

    def __init__(self, model: Model, titles: dict[int, str] | None, saved: str) -> None:
        self.model, self.titles, self.saved = model, titles, saved
        self.log, self.method = model.clicks, model.method
        columns = {  # each item's vector as a column: products are faster
            name: np.asfortranarray(array) if name == "item_factors" else array
            for name, array in model.parameters.items()
        }
        self._fast = replace(model, parameters=model.parameters | columns)
        self._plain = Server.of(model, Rules(), find_average=lambda _: self.average)
        self._server_of = lru_cache(maxsize=SERVERS)(self._server)
        self._names_of = cache(self._names)
        self.has_exposure = model.has_exposure
        self.folds_in = _folds_in(model)

    def _server(self, options: Options) -> Server:
        return Server.of(self._fast, options.rules, find_average=lambda _: self.average)

    @cached_property
    def average(self) -> Average:
        """Serves unknown users; takes seconds, once."""
        return Average.of(self._fast)

    def lists(self, rows: Indices, lengths: Indices, options: Options) -> list[list[Entry]]:
        """The best items of each user, as many as wanted; the row n_users is an unknown user."""
        server, longest = self._server_of(options), min(int(lengths.max()), self.log.n_items)
        items, scores = server.top(rows, longest, threads=1)
        items[np.arange(longest) >= lengths[:, None]] = -1
        return self._entries(server, rows, items, scores)

    def health(self, request: messages.Nothing) -> messages.Health:
        """That the service is ready, and its model."""
        del request
        summary = messages.ModelSummary(
            method=self.method.name,
            users=self.log.n_users,
            items=self.log.n_items,
            clicks=len(self.log),
            has_exposure=self.has_exposure,
            scale=self.method.scale,
            folds_in=self.folds_in,
            saved=self.saved,
            titles=self.titles is not None,
            verdict=str(self.model.verdict) if self.model.verdict else None,
        )
        return messages.Health("ok", summary)

    def fold_in(self, request: messages.FoldIn) -> messages.FoldedIn:
        """The best items for somebody who clicked these; the model does not change."""
        if not self.folds_in:
            raise InputError(f"{self.method.name} cannot fold in users: fit it again")
        if not request.clicks:
            raise InputError("clicks is empty: give the ids of clicked items")
        at = {messages.hashable(raw): self.index(raw, "item") for raw in request.clicks}
        items = sorted({index for index in at.values() if index >= 0})
        if not items:
            raise Missing(f"the model was never trained on any of these {len(at)} items")
        one = fold_in.user_of(self.model, self.model.item_ids.values[items])
        server = Server.of(one, self.options(request).rules, whole=self.model)
        row = np.zeros(1, dtype=np.int32)
        best, scores = server.top(row, min(request.k, self.log.n_items), threads=1)
        (entries,) = self._entries(server, row, best, scores)
        unknown = [in_json(raw) for raw, index in at.items() if index < 0]
        return messages.FoldedIn(len(items), unknown, entries)

    def exposure(self, request: messages.PairsOf) -> messages.Pairs:
        """How likely a user would like each item, and how likely it was shown."""
        if not self.has_exposure:
            raise InputError(f"{self.method.name} has no exposure model")
        row = self.known(request.user, "user")
        items = np.array([self.known(item, "item") for item in request.item], dtype=np.int32)
        clicked = np.isin(items, self.log.items[slice(*self.log.user_start[[row, row + 1]])])
        columns = self._items(items), self._of_pairs(row, items), clicked.tolist()
        pairs = [
            messages.Pair(*item, *one[1:], yes) for item, one, yes in zip(*columns, strict=True)
        ]
        return messages.Pairs(self.raw("user", row), pairs)

    def clicks_of(self, request: messages.ClicksOf) -> messages.Clicks:
        """What a user clicked."""
        row = self.known(request.user, "user")
        begin, end = self.log.user_start[[row, row + 1]].tolist()
        part = slice(begin, min(end, begin + MOST_CLICKS))
        items, counts = np.asarray(self.log.items[part]), self.log.counts[part].tolist()
        columns = self._items(items), counts, self._of_pairs(row, items)
        clicks = [messages.Click(*item, n, *one[2:]) for item, n, one in zip(*columns, strict=True)]
        return messages.Clicks(self.raw("user", row), end - begin, clicks)

    def similar(self, request: messages.SimilarTo) -> messages.Similar:
        """The items most like an item, by the angle of their vectors."""
        row, n_items = self.known(request.item, "item"), self.log.n_items
        if n_items == 1:
            raise InputError("the model has one item only, so none is like it")
        own = self.model.item_ids.values[[row]].tolist()[0]
        table = self.model.similar_items(own, min(request.k, n_items - 1))
        at = self.model.item_ids.index(table["item"].to_list())
        columns = self._items(at), table["similarity"].to_list()
        items = [messages.SimilarItem(*item, cosine) for item, cosine in zip(*columns, strict=True)]
        return messages.Similar(self.raw("item", row), items)

    def search(self, request: messages.Search) -> messages.SearchResults:
        """Items or users whose id begins with a text or whose title holds it, most clicked first.

        The one with exactly this id comes before all others.
        """
        query, role = request.q.strip().casefold(), request.kind
        matches = pl.col("id").str.starts_with(query)
        matches |= pl.col("title").str.contains(query, literal=True)
        frame = self._names_of(role).lazy().filter(matches).head(request.limit)
        at, exact = frame.collect()["at"].to_list(), self.index(request.q.strip(), role)
        if exact >= 0:
            at = [exact, *(one for one in at if one != exact)][: request.limit]
        if role == "item":
            items = [Item(*one) for one in self._items(np.array(at, dtype=np.int32))]
            return messages.SearchResults(items=items)
        clicks = self.log.user_counts[at].tolist()
        users = [
            messages.UserSummary(self.raw("user", one), n)
            for one, n in zip(at, clicks, strict=True)
        ]
        return messages.SearchResults(users=users)

    def options(self, request: messages.ListRules) -> Options:
        """What the request changes about a list; refused if the model cannot do it."""
        if request.minimum_exposure > 0 and not self.has_exposure:
            raise InputError(
                f"{self.method.name} has no exposure model, so it cannot apply minimum_exposure"
            )
        hide_clicked = not (isinstance(request, messages.UserRules) and request.show_clicked)
        return Options(hide_clicked, request.minimum_exposure, request.popularity_penalty)

    def raw(self, role: Role, index: int) -> Any:
        """A raw id as JSON holds it."""
        return in_json(self._ids(role).values[[index]].tolist()[0])

    def index(self, raw: Any, role: Role) -> int:
        """The index of a raw id, by value or else by how it prints; −1 if unknown."""
        ids, raw = self._ids(role), messages.hashable(raw)
        if ids.are_integers and isinstance(raw, bool):
            return -1  # true is not the user 1
        at = int(ids.index([raw])[0])
        if at < 0 and isinstance(raw, str):
            at = int(ids.index(ids.parse([raw]))[0])
        return at

    def known(self, raw: Any, role: Role) -> int:
        """The index of a raw id that the model must have."""
        at = self.index(raw, role)
        if at < 0:
            raise Missing(f"the model was never trained on {role} {plain(repr(raw), 200)}")
        return at

    def _entries(
        self, server: Server, rows: Indices, items: Indices, scores: Any
    ) -> list[list[Entry]]:
        """The lists of these users; a list ends where no item is left."""
        figures = self._figures(server, rows, items, scores)
        pairs = zip(self._items(items[items >= 0]), figures, strict=True)
        entries = (Entry(*item, *figure) for item, figure in pairs)
        lengths = (items >= 0).sum(axis=1).tolist()
        return [[next(entries) for _ in range(length)] for length in lengths]

    def _of_pairs(self, row: int, items: Indices) -> Iterator[Figures]:
        """The figures of a user's pairs with these items."""
        scores = self._fast.scores(np.array([row, row], dtype=np.int32))[:1, items]
        return self._figures(self._plain, np.array([row]), items[None, :], scores)

    def _figures(
        self, server: Server, rows: Indices, items: Indices, scores: Any
    ) -> Iterator[Figures]:
        """Rank, score, relevance and exposure of each item; None where the method has none."""
        table = server.table(pl.Series(rows), rows, items, scores)
        none = [None] * len(table)
        names = ("rank", "score", "relevance", "exposure")
        columns = [table[n].to_list() if n in table.columns else none for n in names]
        return zip(*columns, strict=True)

    def _items(self, items: Indices) -> Iterator[tuple[Any, str | None, int]]:
        """Id, title and clicks of each item."""
        titles = self.titles or {}
        raw = map(in_json, self.model.item_ids.values[items].tolist())
        return zip(
            raw, map(titles.get, items.tolist()), self.log.item_counts[items].tolist(), strict=True
        )

    def _ids(self, role: Role) -> Ids:
        return self.model.user_ids if role == "user" else self.model.item_ids

    def _names(self, role: Role) -> pl.DataFrame:
        """Ids and titles in small letters, the most clicked first."""
        counts = self.log.user_counts if role == "user" else self.log.item_counts
        order = np.argsort(-counts, kind="stable")
        ids = [str(raw).casefold() for raw in self._ids(role).values[order].tolist()]
        titles = self.titles if self.titles and role == "item" else {}
        folded = [titles.get(at, "").casefold() for at in order.tolist()]
        return pl.DataFrame({"at": order, "id": ids, "title": folded})


class Current:
    """The model that serves now. A request takes `model` once and keeps it to its end."""

    def __init__(self, source: Source, *, say: Say) -> None:
        self._source, self._say = source, say
        self._identity = source.identity()
        self.model = read(source)

    async def watch(self, seconds: float = SECONDS) -> None:
        """Look for another model for ever."""
        while True:
            await asyncio.sleep(seconds)
            identity = self._source.identity()
            if identity is not None and identity != self._identity:  # None: it is being replaced
                await asyncio.to_thread(self.reload)

    def reload(self) -> None:
        """Swap in the model that lies there now; the old one stays if it is not whole."""
        path, self._identity = self._source.path, self._source.identity()
        try:
            self.model = read(self._source)
        except Exception as error:  # whatever it is, requests go on
            reason = error if isinstance(error, InputError) else repr(error)
            self._say(f"the new model is refused, the old one stays: {plain(reason)}")
        else:
            self._say(f"{path} holds a new model, saved at {self.model.saved}")


def read(source: Source) -> ServedModel:
    """Load the model that lies there, check all of it, and let it make a list."""
    for _ in range(ATTEMPTS):
        before = source.identity()
        try:
            model = load(source.path, verify=True)
        except InputError:
            if source.identity() == before:
                raise
        else:
            if before is not None and source.identity() == before:
                return _tried(model, source, before[-1])
    raise InputError(f"{source.path} is written again and again; try later")


def _tried(model: Model, source: Source, written: int) -> ServedModel:
    """The model, once it has made a list: what cannot serve is refused before it is swapped in."""
    if min(model.clicks.n_users, model.clicks.n_items) == 0:
        raise InputError(f"{source.path}: the model has no users or no items")
    titles = None
    if source.titles is not None:
        titles = read_titles(source.titles, model, title=source.title)
    saved = datetime.fromtimestamp(written / 1e9, UTC).isoformat()
    served, one = ServedModel(model, titles, saved), np.zeros(1, dtype=np.int32)
    served.lists(one, one + 1, Options())  # compiles what is not compiled yet
    return served


def _folds_in(model: Model) -> bool:
    """Whether users can be folded in: tried with one click."""
    try:
        fold_in.user_of(model, model.item_ids.values[:1])
    except InputError:
        return False
    return True

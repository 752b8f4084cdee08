"""A model by partitions of its users: cut into them, and opened one by one.

What users share is held once. A user's rows, clicks and raw id lie in the partition of the raw id
(`data.partitions`), with the user's place in the whole log.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from unexposed import memory, ranks
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids, match
from unexposed.data.partitions import PARTITIONS, own_rows, partitions
from unexposed.data.share import Share
from unexposed.errors import InputError
from unexposed.files import archive
from unexposed.files.archive import Arrays
from unexposed.files.arrays import release
from unexposed.model.checks import check_shapes, check_values, part, stored_clicks
from unexposed.model.filters import entries
from unexposed.model.save import CLICKS, MODEL, about, check_place, refusing

if TYPE_CHECKING:
    from unexposed.model.model import Model

Rows = NDArray[np.int64]
SHARE = {"users": np.int64, "first_click": np.int64}


# Cutting


def shared_arrays(model: "Model") -> Arrays:
    """The arrays of a model that all users share."""
    own = model.method.user_tables(model.parameters)
    arrays = {f"parameters.{n}": a for n, a in model.parameters.items() if n not in own}
    arrays |= {f"ids.items.{n}": a for n, a in model.item_ids.packed().items()}
    return arrays | {"clicks.item_counts": model.clicks.item_counts.astype(np.int64)}


def own_parts(model: "Model") -> Iterator[tuple[int, Arrays]]:
    """The arrays of each partition of this rank, one in memory at a time."""
    clicks = model.clicks
    tables = {n: model.parameters[n] for n in model.method.user_tables(model.parameters)}
    share = clicks.share
    places = {
        "users": np.arange(clicks.n_users) if share is None else share.users,
        "first_click": clicks.user_start[:-1] if share is None else share.first_click,
    }
    for number, rows in own_rows(clicks.user_ids):
        start, end = clicks.user_start[rows], clicks.user_start[rows + 1]
        users, items = entries(start, end, clicks.items)
        columns: Arrays = {
            "users": users.astype(np.int32),
            "items": items,
            "counts": entries(start, end, clicks.counts)[1],
            "user_start": np.concatenate([[0], np.cumsum(end - start)]).astype(np.int64),
        }
        ids = Ids(clicks.user_ids.values[rows]).packed()
        cut: Arrays = (
            {f"parameters.{name}": table[rows] for name, table in tables.items()}
            | {f"clicks.{name}": columns[name] for name in CLICKS}
            | {f"ids.users.{name}": array for name, array in ids.items()}
            | {f"share.{name}": places[name][rows].astype(np.int64) for name in SHARE}
        )
        yield number, cut


def save(model: "Model", folder: Path) -> None:
    """Write the model by partitions, atomically; the ranks that divide it write it together."""
    with ranks.together() as others:
        if others is None and model.clicks.share is not None:
            raise InputError(
                f"this model holds {model.clicks.n_users:,} of {model.clicks.share.n_users:,} "
                "users: save the whole one"
            )
        if others is None or others.rank == 0:
            check_place(folder)
        model.verify()
        log = without_users(model).clicks.share
        assert log is not None
        sizes = {"users": log.n_users, "clicks": log.n_clicks}
        with refusing(folder):
            archive.write_parted(
                MODEL,
                folder,
                about(model) | sizes,
                shared_arrays(model),
                own_parts(model),
            )


def gathered(model: "Model") -> "Model":
    """The whole model, from the users of every rank; each of them must call this."""
    with ranks.together() as others:
        if others is None:
            raise InputError(
                f"this model holds {model.clicks.n_users:,} of its users: load the saved one"
            )
        found = others.every(dict(own_parts(model)))
    parts = {number: arrays for of_rank in found for number, arrays in of_rank.items()}
    every = [parts[number] for number in range(PARTITIONS)]
    return Partitions(without_users(model), every, Path("the gathered model")).whole()


def without_users(model: "Model") -> "Model":
    """What users share of a model."""
    log, none = model.clicks, np.zeros(0, dtype=np.int32)
    n_users, n_clicks = log.n_users, len(log)
    if log.share is not None:
        n_users, n_clicks = log.share.n_users, log.share.n_clicks
    share = Share(n_users, n_clicks, none.astype(np.int64), none.astype(np.int64), log.item_counts)
    clicks = Clicks(none, none, none, Ids(log.user_ids.values[:0]), log.item_ids, share=share)
    own = model.method.user_tables(model.parameters)
    shared = {name: table for name, table in model.parameters.items() if name not in own}
    return replace(model, parameters=shared, clicks=clicks)


# Opening


@dataclass(frozen=True, eq=False)
class Partitions:
    """The partitions of a saved model, memory-mapped: each is a model of its own users.

    A partition ranks, draws ties and counts popularity as the whole model does.
    """

    shared: "Model"  # without users
    parts: list[Arrays]
    folder: Path
    check: Callable[[Iterable[int]], None] = lambda _: None  # compares these with their checksums

    @property
    def n_users(self) -> int:
        return self._share.n_users

    @property
    def item_ids(self) -> Ids:
        return self.shared.item_ids

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> "Iterator[Model]":
        return (model for _, model in self.one_by_one(range(len(self))))

    def one_by_one(self, numbers: Iterable[int]) -> "Iterator[tuple[int, Model]]":
        """The models of these partitions, with the memory of one at a time."""
        for number in numbers:
            yield number, self[number]
            release(self.parts[number])

    def __getitem__(self, number: int) -> "Model":
        """The model of the users of one partition."""
        arrays = self.parts[number]
        with archive.refusing(MODEL, self.folder / archive.part_name(number)):
            places = part(arrays, "share.")
            if {name: array.dtype for name, array in places.items()} != SHARE:
                raise ValueError("it does not say where its users stand")
            share = replace(self._share, users=places["users"], first_click=places["first_click"])
            clicks = stored_clicks(arrays, self.item_ids, share)
            if not len(share.users) == len(share.first_click) == clicks.n_users:
                raise ValueError("it does not say where all of its users stand")
            if clicks.n_users == 0:
                clicks.__dict__["user_ids"] = self.like
            parameters = self.shared.parameters | part(arrays, "parameters.")
            model = replace(self.shared, parameters=parameters, clicks=clicks)
            check_shapes(model)
        return replace(model, verify=lambda: self._verify([number]))

    @cached_property
    def ids_are(self) -> Literal["integers", "texts", "mixed"]:
        """What the raw ids of all users are."""
        kinds = set()
        for arrays in self.parts:
            packed = part(arrays, "ids.users.")
            if "integers" in packed:
                kinds |= {"integers"} if len(packed["integers"]) else set()
            elif "ends" in packed:
                kinds |= {"texts"} if len(packed["ends"]) else set()
            else:
                kinds.add("mixed")
        if kinds == {"integers"}:
            return "integers"
        return "texts" if kinds <= {"texts"} else "mixed"

    @property
    def like(self) -> Ids:
        """No ids, of the type of the raw ids of the users."""
        return Ids(np.zeros(0, dtype=np.int64 if self.ids_are == "integers" else object))

    def of_users(self, ids: Ids) -> "Model":
        """The model of those among these users that it knows, by value or else by print."""
        chosen = {}
        for number, wanted in self._by_partition(ids).items():
            if not len(wanted):
                continue
            rows = match(wanted, self[number].user_ids)
            chosen[number] = np.unique(rows[rows >= 0]).astype(np.int64)
        return self._joined(chosen)

    def at(self, users: NDArray[Any]) -> "Model":
        """The model of the users with these indices in the whole log."""
        chosen = {}
        for number, arrays in enumerate(self.parts):
            chosen[number] = np.flatnonzero(np.isin(arrays["share.users"], users))
        return self._joined(chosen)

    def join(self, numbers: Iterable[int]) -> "Model":
        """The model of the users of these partitions, in memory."""
        return self._joined({n: np.arange(self[n].clicks.n_users) for n in numbers})

    def whole(self, *, verify: bool = False) -> "Model":
        """The model of all users, in memory, in the order of the whole log."""
        needed = sum(array.nbytes for arrays in self.parts for array in arrays.values())
        cure = "take recommend or evaluate, which open one partition at a time"
        memory.check(str(self.folder), needed, what="a model of all users", cure=cure)
        model = self.join(range(len(self)))
        share = model.clicks.share
        with archive.refusing(MODEL, self.folder / MODEL.about):
            assert share is not None
            if not np.array_equal(share.users, np.arange(self.n_users)):
                raise ValueError("its partitions do not hold each user once")
            if not np.array_equal(share.first_click, model.clicks.user_start[:-1]):
                raise ValueError("its partitions do not hold each click once")
        model = replace(model, clicks=replace(model.clicks, share=None))
        if verify:
            self._verify(range(len(self)))
            return model
        return replace(model, verify=lambda: self._verify(range(len(self))))

    @property
    def _share(self) -> Share:
        share = self.shared.clicks.share
        assert share is not None, "made by `without_users`"
        return share

    def _by_partition(self, ids: Ids) -> dict[int, Ids]:
        """These users by the partition that may hold them."""
        if self.ids_are == "mixed":
            return dict.fromkeys(range(len(self)), ids)
        printed = [raw if isinstance(raw, str) else str(raw) for raw in ids.values.tolist()]
        if self.ids_are == "integers":
            read = self.like.parse(printed)
            ids = Ids.of(dict.fromkeys(raw for raw in read if isinstance(raw, int)))
        else:
            ids = Ids(np.array([*dict.fromkeys(printed)], dtype=object))
        number_of = partitions(ids)
        return {n: Ids(ids.values[number_of == n]) for n in np.unique(number_of).tolist()}

    def _joined(self, chosen: Mapping[int, Rows]) -> "Model":
        """The model of these rows of some partitions, in the order of the whole log."""
        chosen = chosen or {0: np.zeros(0, dtype=np.int64)}
        found = {number: self[number] for number in chosen}
        logs = {number: model.clicks for number, model in found.items()}
        with archive.refusing(MODEL, self.folder / MODEL.about):
            users = np.concatenate([_share_of(logs[n]).users[rows] for n, rows in chosen.items()])
            order = np.argsort(users, kind="stable")
            place = np.empty_like(order)
            place[order] = np.arange(len(order))
            ends = np.cumsum([len(rows) for rows in chosen.values()])[:-1]
            at = dict(zip(chosen, np.split(place, ends), strict=True))

            def filled(of: Callable[[int], NDArray[Any]]) -> NDArray[Any]:
                first = of(next(iter(chosen)))
                table = np.empty((len(users), *first.shape[1:]), dtype=first.dtype)
                for number in chosen:
                    table[at[number]] = of(number)
                return table

            parameters = self.shared.parameters | {
                name: filled(lambda n, name=name: found[n].parameters[name][chosen[n]])  # type: ignore[misc]
                for name in next(iter(found.values())).parameters
                if name not in self.shared.parameters
            }
            first = filled(lambda n: _share_of(logs[n]).first_click[chosen[n]])
            length = filled(lambda n: np.diff(logs[n].user_start)[chosen[n]])
            start = np.concatenate([[0], np.cumsum(length)])
            items, counts = np.empty((2, start[-1]), dtype=np.int32)
            for number, rows in chosen.items():
                log = logs[number]
                begin, end = log.user_start[rows], log.user_start[rows + 1]
                within, there = entries(begin, end, np.arange(len(log), dtype=np.int64))
                to = start[at[number]][within] + there - begin[within]
                items[to], counts[to] = log.items[there], log.counts[there]
            clicks = Clicks(
                np.repeat(np.arange(len(users), dtype=np.int32), length),
                items,
                counts,
                self._ids(chosen, at, logs, len(users)),
                self.item_ids,
                share=replace(self._share, users=users[order], first_click=first),
            )
        return replace(
            self.shared,
            parameters=parameters,
            clicks=clicks,
            verify=lambda: self._verify(chosen),
        )

    def _ids(
        self,
        chosen: Mapping[int, Rows],
        at: Mapping[int, NDArray[Any]],
        logs: Mapping[int, Clicks],
        n_users: int,
    ) -> Ids:
        values = np.empty(n_users, dtype=self.like.values.dtype)
        for number, rows in chosen.items():
            values[at[number]] = logs[number].user_ids.values[rows]
        return Ids(values)

    def _verify(self, numbers: Iterable[int]) -> None:
        numbers = list(numbers)
        self.check(numbers)
        for number in numbers:
            with archive.refusing(MODEL, self.folder / archive.part_name(number)):
                check_values(self[number])


def _share_of(clicks: Clicks) -> Share:
    assert clicks.share is not None, "partitions know their places"
    return clicks.share

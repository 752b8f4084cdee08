"""A model by partitions of its users, opened one by one."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from unexposed import memory
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids, match
from unexposed.data.share import Share, partitions
from unexposed.errors import InputError
from unexposed.model.filters import entries
from unexposed.model.save import COLUMNS, MODEL, cut, own_shards, share_of, without_users
from unexposed.tensors import Arrays, Tensors, part, refusing
from unexposed.workers import together

if TYPE_CHECKING:
    from unexposed.model.model import Model

Rows = NDArray[np.int64]
PLACES = {"users": np.int64, "first_click": np.int64}


@dataclass(frozen=True, eq=False)
class Partitions:
    """The partitions of a saved model, memory-mapped: each is a model of its own users.

    A partition ranks, draws ties and counts popularity as the whole model does.
    """

    shared: "Model"  # without users
    stored: Tensors

    @property
    def n_users(self) -> int:
        return share_of(self.shared).n_users

    @property
    def item_ids(self) -> Ids:
        return self.shared.item_ids

    def __len__(self) -> int:
        return len(self.stored.shards)

    def __iter__(self) -> "Iterator[Model]":
        return (model for _, model in self.one_by_one(range(len(self))))

    def one_by_one(self, numbers: Iterable[int]) -> "Iterator[tuple[int, Model]]":
        """The models of these partitions, with the memory of one at a time."""
        for number in numbers:
            yield number, self[number]
            self.stored.shards[number].release()

    def __getitem__(self, number: int) -> "Model":
        """The model of the users of one partition."""
        return self._opened(number, verify=False)

    def _opened(self, number: int, *, verify: bool) -> "Model":
        shard = self.stored.shards[number]
        with refusing(MODEL, shard.path):
            places = part(shard.arrays, "share.")
            if {name: array.dtype for name, array in places.items()} != PLACES:
                raise ValueError("it does not say where its users stand")
            users, first = places["users"], places["first_click"]
            share = replace(share_of(self.shared), users=users, first_click=first)
            clicks = stored_clicks(shard.arrays, self.item_ids, share)
            share.check(clicks.n_users, clicks.n_items)
            if clicks.n_users == 0:
                clicks.__dict__["user_ids"] = self.like
            parameters = self.shared.parameters | part(shard.arrays, "parameters.")
            model = replace(self.shared, parameters=parameters, clicks=clicks)
            check(model, shard, values=verify)
        return model

    @cached_property
    def ids_are(self) -> Literal["integers", "texts", "mixed"]:
        """What the raw ids of all users are."""
        kinds = set[Literal["integers", "texts", "mixed"]]()
        for shard in self.stored.shards:
            if len(shard.arrays["clicks.user_start"]) > 1:
                packed = part(shard.arrays, "ids.users.")
                is_text = "ends" in packed
                kinds.add("integers" if "integers" in packed else "texts" if is_text else "mixed")
        return kinds.pop() if len(kinds) == 1 else "mixed" if kinds else "texts"

    @property
    def like(self) -> Ids:
        """No ids, of the type of the raw ids of the users."""
        return Ids(np.zeros(0, dtype=np.int64 if self.ids_are == "integers" else object))

    def of_users(self, ids: Ids) -> "Model":
        """The model of those among these users that it knows, by value or else by print."""
        chosen = {}
        for number, wanted in self._by_partition(ids).items():
            rows = match(wanted, self[number].user_ids)
            chosen[number] = np.unique(rows[rows >= 0]).astype(np.int64)
        return self._joined(chosen)

    def at(self, users: NDArray[Any]) -> "Model":
        """The model of the users with these indices in the whole log."""
        places = (shard.arrays["share.users"] for shard in self.stored.shards)
        return self._joined(
            {n: np.flatnonzero(np.isin(own, users)) for n, own in enumerate(places)}
        )

    def whole(self, *, verify: bool = False) -> "Model":
        """The model of all users, in memory, in the order of the whole log."""
        path = self.stored.path
        held = [array for one in self.stored.shards for array in one.arrays.values()]
        cure = "take recommend or evaluate, which open one partition at a time"
        needed = 2 * sum(array.nbytes for array in held)
        memory.check(str(path), needed, what="a model of all users", cure=cure)
        if verify:
            with refusing(MODEL, path):
                self.stored.verify()
            for number in range(len(self)):
                self._opened(number, verify=True)
        model = self._joined({n: np.arange(self[n].clicks.n_users) for n in range(len(self))})
        share = share_of(model)
        with refusing(MODEL, path):
            if not np.array_equal(share.users, np.arange(self.n_users)):
                raise ValueError("its partitions do not hold each user once")
        return replace(model, clicks=replace(model.clicks, share=None))

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
        models = [(self[number], rows) for number, rows in chosen.items()]
        pieces = [cut(model, rows) for model, rows in models]
        order = np.argsort(np.concatenate([piece["share.users"] for piece in pieces]))

        def joined(name: str) -> NDArray[Any]:
            return np.concatenate([piece[name] for piece in pieces])[order]

        length = np.concatenate([np.diff(piece["clicks.user_start"]) for piece in pieces])
        start = (np.cumsum(length) - length)[order]
        items, counts = (
            np.concatenate([piece[f"clicks.{name}"] for piece in pieces])
            for name in ("items", "counts")
        )
        users, items = entries(start, start + length[order], items)
        ids = np.empty(len(order), dtype=self.like.values.dtype)
        ids[:] = [raw for model, rows in models for raw in model.user_ids.values[rows].tolist()]
        share = replace(
            share_of(self.shared),
            users=joined("share.users"),
            first_click=joined("share.first_click"),
        )
        clicks = Clicks(
            users.astype(np.int32),
            items,
            entries(start, start + length[order], counts)[1],
            Ids(ids[order]),
            self.item_ids,
            share=share,
        )
        own = {f"parameters.{name}" for name in models[0][0].parameters} & pieces[0].keys()
        tables = {name.removeprefix("parameters."): joined(name) for name in own}
        return replace(self.shared, parameters=self.shared.parameters | tables, clicks=clicks)


def gathered(model: "Model") -> "Model":
    """The whole model, from the users of every worker; each of them must call this."""
    with together() as workers:
        if workers is None:
            raise InputError(
                f"this model holds {model.clicks.n_users:,} of its users: load the saved one"
            )
        every = workers.every(dict(own_shards(model, workers)))
    here = Path("the gathered model")
    arrays = {number: shard for own in every for number, shard in own.items()}
    shards = [Tensors(here, {}, arrays[number]) for number in range(len(arrays))]
    return Partitions(without_users(model), Tensors(here, {}, {}, shards)).whole()


def stored_clicks(arrays: Arrays, item_ids: Ids, share: Share | None = None) -> Clicks:
    """The clicks; checks only their number and bounds, the rest when used."""
    columns = part(arrays, "clicks.")
    if {name: column.dtype for name, column in columns.items()} != COLUMNS:
        raise ValueError("its clicks have other columns than a model has")
    user_ids = Ids.unpacked(part(arrays, "ids.users."))
    n, start = len(columns["items"]), columns["user_start"]
    lengths = dict.fromkeys(COLUMNS, (n,)) | {"user_start": (len(user_ids) + 1,)}
    if {name: column.shape for name, column in columns.items()} != lengths:
        raise ValueError("its columns of clicks differ in length")
    if start[0] != 0 or start[-1] != n:
        raise ValueError("its clicks do not begin and end with its users")
    return Clicks.stored(**columns, user_ids=user_ids, item_ids=item_ids, share=share)


def check(model: "Model", stored: Tensors, *, values: bool) -> None:
    """Refuse parameters of the wrong shape; with `values`, read them and all clicks as well."""
    n_users, n_items = model.clicks.n_users, model.clicks.n_items
    method, parameters = model.method, model.parameters
    for name in method.user_tables(parameters):
        if len(parameters[name]) != n_users:
            raise ValueError(f"{name} has {len(parameters[name])} rows for {n_users} users")
    vectors, width = method.vectors(parameters), getattr(method, "width", None)
    if vectors is not None and width not in (None, vectors.items.shape[1]):
        raise ValueError(f"its vectors have {vectors.items.shape[1]} columns for {width}")
    nobody = np.zeros(0, dtype=np.int32)
    exposure = method.exposure(parameters, nobody)
    blocks = [model.scores(nobody), *(() if exposure is None else (exposure,))]
    if any(block.shape != (0, n_items) for block in blocks):
        raise ValueError("its parameters do not score all items")
    if not values:
        return
    stored.verify()
    model.clicks.checked()
    for name, table in parameters.items():
        if not np.isfinite(table).all():
            raise ValueError(f"{name} holds values that are not finite")

"""Raw ids of users and items, as their owner writes them, and the index of each."""

import json
import re
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unexposed.errors import InputError

if TYPE_CHECKING:
    import polars as pl

DAMAGED = "the raw ids of this model are damaged; train it again"
PACKED = {
    "integers": np.int64,
    "run": np.uint8,
    "ends": np.int64,
    "order": np.int32,
    "json": np.uint8,
}
FEW = 50  # a binary search among texts takes about as long as decoding this many of them


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts as one run of UTF-8 and their ends: an array that decodes only what is read."""

    run: NDArray[np.uint8]
    ends: NDArray[np.int64]

    @staticmethod
    def of(texts: Iterable[str]) -> "Texts":
        encoded = [_encoded(text) for text in texts]
        ends = np.cumsum([len(e) for e in encoded], dtype=np.int64)
        return Texts(np.frombuffer(b"".join(encoded), dtype=np.uint8), ends)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(object)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, at: Any) -> Any:
        """The text at an index, or an array of texts (for a slice, indices or a mask)."""
        if isinstance(at, slice):
            at = np.arange(*at.indices(len(self)))
        places = np.asarray(at)
        if places.dtype == bool:
            places = np.flatnonzero(places)
        places = np.where(places < 0, places + len(self), places).astype(np.int64)
        stops = self.ends[places]
        starts = np.where(places == 0, 0, self.ends[places - 1])
        bounds = zip(starts.ravel().tolist(), stops.ravel().tolist(), strict=True)
        run: Any = self.run
        view = memoryview(run)
        found = np.empty(places.shape, dtype=object)
        try:
            found.ravel()[:] = [str(view[a:b], "utf-8", "surrogatepass") for a, b in bounds]
        except UnicodeDecodeError as error:
            raise InputError(DAMAGED) from error
        return found if found.ndim else found.item()

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        del dtype, copy
        return self[:]

    def tolist(self) -> list[str]:
        return self[:].tolist()

    def encoded(self, place: int) -> bytes:
        start = self.ends[place - 1] if place else 0
        return self.run[start : self.ends[place]].tobytes()


@dataclass(frozen=True, eq=False)
class Ids:
    """Raw ids in the order of their indices: int64 where all are integers, else texts or objects.

    Texts of a saved model stay in its memory-mapped file until they are needed.
    """

    values: Any  # NDArray of int64 or objects, or Texts

    def __post_init__(self) -> None:
        if self.values.dtype != object and self.values.dtype != np.int64:
            raise InputError(f"ids must be int64 or object arrays, got {self.values.dtype}")

    @staticmethod
    def of(raw: Iterable[Hashable]) -> "Ids":
        """Ids from distinct raw values, in the order given."""
        raw = list(raw)
        if all(_is_int64(r) for r in raw):
            return Ids(np.array(raw, dtype=np.int64))
        values = np.empty(len(raw), dtype=object)
        values[:] = raw
        return Ids(values)

    @staticmethod
    def range(n: int) -> "Ids":
        return Ids(np.arange(n, dtype=np.int64))

    @staticmethod
    def unpacked(arrays: Mapping[str, NDArray[Any]]) -> "Ids":
        """Ids from the arrays that `packed` returns."""
        for name, array in arrays.items():
            if array.ndim != 1 or array.dtype != PACKED.get(name):
                raise ValueError(f"there are no ids in {name}")
        if "json" in arrays:
            return Ids.of(_from_json(text) for text in json.loads(arrays["json"].tobytes()))
        if "integers" in arrays:
            ids = Ids(arrays["integers"])
        else:
            ids = Ids(Texts(arrays["run"], arrays["ends"]))
        order = arrays.get("order")
        if order is not None and len(order) != len(ids):
            raise ValueError("the order of the ids is not theirs")
        ids.__dict__["order"] = order  # fills the cached property
        return ids

    def packed(self) -> dict[str, NDArray[Any]]:
        """The ids as arrays: integers or a run of text, with their order; other types as JSON."""
        order = {} if self.order is None else {"order": self.order}
        if self.are_integers:
            return {"integers": self.values} | order
        if not self.are_texts:
            document = json.dumps([to_json(raw) for raw in self.values.tolist()])
            return {"json": np.frombuffer(document.encode(), dtype=np.uint8)}
        texts = self.values if isinstance(self.values, Texts) else Texts.of(self.values.tolist())
        return {"run": texts.run, "ends": texts.ends, **order}

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        first = ", ".join(repr(raw) for raw in self.values[:3].tolist())
        return f"Ids({len(self):,}: {first}{', …' if len(self) > 3 else ''})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ids) and (
            self is other or bool(np.array_equal(np.asarray(self.values), np.asarray(other.values)))
        )

    @property
    def are_integers(self) -> bool:
        return self.values.dtype == np.int64

    @cached_property
    def are_texts(self) -> bool:
        return isinstance(self.values, Texts) or all(type(raw) is str for raw in self.values)

    @property
    def are_sortable(self) -> bool:
        return self.are_integers or self.are_texts

    @cached_property
    def order(self) -> NDArray[np.int32] | None:
        """The indices by ascending id; None if the ids ascend already, or cannot be ordered."""
        if self.are_integers:
            ascend = bool((self.values[1:] > self.values[:-1]).all())
            return None if ascend else np.argsort(self.values, kind="stable").astype(np.int32)
        if not self.are_texts:
            return None
        # by code points, which is by bytes of UTF-8
        texts = self.values.tolist()
        if all(a < b for a, b in pairwise(texts)):
            return None
        return np.array(sorted(range(len(texts)), key=texts.__getitem__), dtype=np.int32)

    @cached_property
    def _position(self) -> dict[Hashable, int]:
        return {raw: index for index, raw in enumerate(self.values.tolist())}

    def index(self, raw: Iterable[Hashable]) -> NDArray[np.int32]:
        """The index of each raw id, −1 for an unknown one."""
        if self.are_integers:
            return self._index_integers(raw)
        raw = list(raw)
        few = isinstance(self.values, Texts) and len(raw) * FEW < len(self)
        if few and "_position" not in self.__dict__:
            return np.array([self._search(r) for r in raw], dtype=np.int32)
        return np.array([self._position.get(r, -1) for r in raw], dtype=np.int32)

    def _index_integers(self, raw: Iterable[Hashable]) -> NDArray[np.int32]:
        if not (isinstance(raw, np.ndarray) and raw.dtype.kind in "iu"):
            numbers = [_whole(r) for r in raw]
            known = np.array([n is not None for n in numbers], dtype=bool)
            wanted = np.array([n or 0 for n in numbers], dtype=np.int64)
        else:
            wanted = raw.astype(np.int64)
            known = wanted == raw
        if len(self) == 0:
            return np.full(len(wanted), -1, dtype=np.int32)
        order = self.order
        try:
            place = np.searchsorted(self.values, wanted, sorter=order).clip(max=len(self) - 1)
        except ValueError as error:  # a damaged order points outside
            raise InputError(DAMAGED) from error
        found = place if order is None else order[place]
        return np.where(known & (self.values[found] == wanted), found, -1).astype(np.int32)

    def _search(self, raw: Hashable) -> int:
        """The index of a text by binary search, which reads only a few texts."""
        if not isinstance(raw, str):
            return -1
        texts, wanted, order = self.values, _encoded(raw), self.order

        def at(place: int) -> int:
            return place if order is None else int(order[place])

        try:
            place = bisect_left(range(len(self)), wanted, key=lambda p: texts.encoded(at(p)))
            there = place < len(self) and texts.encoded(at(place)) == wanted
        except IndexError as error:
            raise InputError(DAMAGED) from error
        return at(place) if there else -1

    def parse(self, texts: Sequence[str]) -> list[Hashable]:
        """Raw ids from the texts of a file or a command line, matched by how ids print."""
        if self.are_integers:
            printed = re.compile("0|-?[1-9][0-9]{0,18}")  # as many digits as an int64 has
            return [int(text) if printed.fullmatch(text) else text for text in texts]
        known = {} if self.are_texts else {str(raw): raw for raw in self.values.tolist()}
        return [known.get(text, text) for text in texts]


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _is_int64(raw: Hashable) -> bool:
    whole = type(raw) is int or isinstance(raw, np.integer)
    return whole and -(2**63) <= raw < 2**63  # type: ignore[operator]


def _whole(raw: Hashable) -> int | None:
    """The integer equal to a raw id: 3 for 3.0 and for numpy's 3."""
    if isinstance(raw, bool) or (isinstance(raw, float) and raw.is_integer()):
        raw = int(raw)
    return int(raw) if _is_int64(raw) else None  # type: ignore[call-overload]


def to_json(raw: Hashable) -> Any:
    """A raw id in a form that JSON can hold."""
    if raw is None or isinstance(raw, str | bool | int | float):
        return raw
    if isinstance(raw, tuple):
        return {"tuple": [to_json(part) for part in raw]}
    raise InputError(
        f"ids of type {type(raw).__name__} cannot be saved; use text, numbers or tuples of them"
    )


def _from_json(text: Any) -> Hashable:
    if isinstance(text, dict):
        return tuple(_from_json(part) for part in text["tuple"])
    if isinstance(text, list):
        raise ValueError("an id cannot be a list")
    return text


def match(raw: Ids, known: Ids) -> NDArray[np.int32]:
    """The index in `known` of each raw id, by value or else by how it prints; −1 if unknown."""
    found = known.index(raw.values)
    if (raw.are_integers and known.are_integers) or (found >= 0).all():
        return found
    printed = {str(r): index for index, r in enumerate(known.values.tolist())}
    by_print = np.array([printed.get(str(r), -1) for r in raw.values.tolist()], dtype=np.int32)
    return np.where(found >= 0, found, by_print)


def joined(ids: Ids, others: Ids, new: NDArray[np.bool_]) -> Ids:
    """The ids, followed by the new ones among the others."""
    if ids.are_integers and others.are_integers:
        return Ids(np.concatenate([ids.values, others.values[new]]))
    return Ids.of([*ids.values.tolist(), *others.values[new].tolist()])


def column(values: NDArray[Any]) -> "pl.Series":
    """Raw ids as a polars column, of a native type where there is one."""
    import polars as pl

    if values.dtype != object:
        return pl.Series(values)
    kinds = {type(v) for v in values.tolist()}
    if len(kinds) == 1 and kinds <= {str, float, bool}:
        return pl.Series(values.tolist())
    if kinds == {int}:  # beyond int64, such as unsigned 64-bit hashes
        wide = pl.UInt64 if min(values) >= 0 and max(values) < 2**64 else pl.Int128
        if min(values) >= -(2**127) and max(values) < 2**127:
            return pl.Series(values.tolist(), dtype=wide)
    return pl.Series(values.tolist(), dtype=pl.Object)

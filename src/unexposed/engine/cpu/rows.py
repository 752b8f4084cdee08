"""Arithmetic on rows: dot products, scaled sums, Adam; and the vectors that it is written in.

A table of rows is one flat array: row r begins at 3·dim·r and holds the value, then Adam's two
moments. dim is the model's, padded with zeros to whole vectors. Lengths are whole vectors; offsets
are unsigned, so that no loop checks for negative ones.

A vector is 64 bytes: as many numbers as one instruction works on. `load` reads neighbouring numbers
of an array as one value; values add, subtract, multiply and divide lane by lane; `store` writes
them back. A loop written with them has no remainder and no check at run time for overlapping
arrays.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import numba.core.cgutils
import numba.core.typing.templates
import numba.extending
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

from unexposed.engine.adam import BETA1, BETA2, EPSILON
from unexposed.engine.cpu.compile import Array, jit_inline, prefetch

BYTES = 64
cgutils: Any = numba.core.cgutils
templates: Any = numba.core.typing.templates
extending: Any = numba.extending
NumbaType: Any = types.Type


@extending.register_jitable  # type: ignore[untyped-decorator]
def whole(dim: int, itemsize: int) -> int:
    """The length of a row of `dim` numbers, padded to whole vectors."""
    lanes = BYTES // itemsize
    return -(-dim // lanes) * lanes


class Lanes(NumbaType):  # type: ignore[misc]
    """Numba's type of a vector."""

    def __init__(self, real: Any) -> None:
        self.real, self.count = real, 8 * BYTES // real.bitwidth
        super().__init__(name=f"Lanes({real}, {self.count})")

    def function(self, name: str) -> str:
        return f"llvm.{name}.v{self.count}f{self.real.bitwidth}"


@extending.register_model(Lanes)
class _Model(extending.models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Lanes) -> None:
        real = ir.FloatType() if kind.real.bitwidth == 32 else ir.DoubleType()
        super().__init__(manager, kind, ir.VectorType(real, kind.count))


def _width(_: Any, array: Any) -> Any:
    """Numbers of the array's type in a vector."""

    def generate(context: Any, _builder: Any, _signature: Any, _arguments: Any) -> Any:
        return context.get_constant(types.uint64, Lanes(array.dtype).count)

    return types.uint64(array), generate


def _load(_: Any, array: Any, _at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        loaded = builder.load(_pointer(context, builder, signature, arguments))
        loaded.align = array.dtype.bitwidth // 8
        return loaded

    return Lanes(array.dtype)(array, types.uint64), generate


def _store(_: Any, array: Any, _at: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature, arguments)
        builder.store(arguments[2], pointer).align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.none(array, types.uint64, value), generate


def _pointer(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    array_type = signature.args[0]
    array = context.make_array(array_type)(context, builder, arguments[0])
    vector = context.get_value_type(Lanes(array_type.dtype))
    return builder.bitcast(builder.gep(array.data, [arguments[1]]), vector.as_pointer())


def _fill(_: Any, array: Any, _number: Any) -> Any:
    """The number in every lane, of the array's type."""
    kind = Lanes(array.dtype)

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        nothing = ir.Constant(context.get_value_type(kind), ir.Undefined)
        one = builder.insert_element(nothing, arguments[1], ir.IntType(32)(0))
        places = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
        return builder.shuffle_vector(one, nothing, places)

    return kind(array, kind.real), generate


def _total(_: Any, value: Any) -> Any:
    """The sum of the lanes, added up as a tree."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        real = arguments[0].type.element
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(real, [real, arguments[0].type]),
            value.function("vector.reduce.fadd"),
        )
        return builder.call(function, [ir.Constant(real, -0.0), *arguments], fastmath=["reassoc"])

    return value.real(value), generate


def _root(_: Any, value: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(arguments[0].type, [arguments[0].type])
        function = cgutils.get_or_insert_function(builder.module, kind, value.function("sqrt"))
        return builder.call(function, arguments)

    return value(value), generate


def _make_operator(function: Callable[[Any, Any], Any], instruction: str) -> None:
    @templates.infer_global(function)
    class _Template(templates.AbstractTemplate):  # type: ignore[misc]
        def generic(self, arguments: Any, _keywords: Any) -> Any:
            if len(arguments) == 2 and isinstance(arguments[0], Lanes):
                return templates.signature(arguments[0], arguments[0], arguments[0])
            return None

    @extending.lower_builtin(function, Lanes, Lanes)  # type: ignore[untyped-decorator]
    def _lower(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return getattr(builder, instruction)(*arguments, flags=("contract",))


_make_operator(operator.add, "fadd")
_make_operator(operator.sub, "fsub")
_make_operator(operator.mul, "fmul")
_make_operator(operator.truediv, "fdiv")
width: Any = extending.intrinsic(_width)
load: Any = extending.intrinsic(_load)
store: Any = extending.intrinsic(_store)
fill: Any = extending.intrinsic(_fill)
total: Any = extending.intrinsic(_total)
root: Any = extending.intrinsic(_root)


# rows -------------------------------------------------------------------------------------------


@jit_inline
def dot(left: Array, at: int, right: Array, other: int, dim: int) -> Any:
    at_, other_ = np.uint64(at), np.uint64(other)
    sums = load(left, at_) * load(right, other_)
    for k in range(width(left), np.uint64(dim), width(left)):
        sums = sums + load(left, at_ + k) * load(right, other_ + k)
    return total(sums)


@jit_inline
def two_dots(left: Array, also: Array, at: int, right: Array, other: int, dim: int) -> Any:
    """One row of two tables, each times a row of a third."""
    at_, other_ = np.uint64(at), np.uint64(other)
    row = load(right, other_)
    first, second = load(left, at_) * row, load(also, at_) * row
    for k in range(width(left), np.uint64(dim), width(left)):
        row = load(right, other_ + k)
        first = first + load(left, at_ + k) * row
        second = second + load(also, at_ + k) * row
    return total(first), total(second)


@jit_inline
def fetch(table: Array, at: int, length: int) -> None:
    """Prefetch a stretch of a table while the kernel works on other rows."""
    k: Any = at
    while k < at + length:
        prefetch(table, k)
        k += np.int64(width(table))  # a cache line


@jit_inline
def put(target: Array, at: int, source: Array, other: int, dim: int) -> None:
    at_, other_ = np.uint64(at), np.uint64(other)
    for k in range(np.uint64(0), np.uint64(dim), width(target)):
        store(target, at_ + k, load(source, other_ + k))


@jit_inline
def put_zero(target: Array, at: int, dim: int) -> None:
    nothing = fill(target, target.dtype.type(0))
    for k in range(np.uint64(0), np.uint64(dim), width(target)):
        store(target, np.uint64(at) + k, nothing)


@jit_inline
def hold(target: Array, at: int, column: int, value: Any) -> None:
    """Set the fixed column of a row; −1: it has none."""
    if column >= 0:
        target[at + column] = value


@jit_inline
def add_scaled(target: Array, at: int, source: Array, other: int, scale: Any, dim: int) -> None:
    at_, other_ = np.uint64(at), np.uint64(other)
    by = fill(target, target.dtype.type(scale))
    for k in range(np.uint64(0), np.uint64(dim), width(target)):
        store(target, at_ + k, load(target, at_ + k) + by * load(source, other_ + k))


@jit_inline
def put_scaled(target: Array, at: int, source: Array, other: int, scale: Any, dim: int) -> None:
    at_, other_ = np.uint64(at), np.uint64(other)
    by = fill(target, target.dtype.type(scale))
    for k in range(np.uint64(0), np.uint64(dim), width(target)):
        store(target, at_ + k, by * load(source, other_ + k))


@jit_inline
def sum_up(
    target: Array,
    at: int,
    source: Array,
    stride: int,
    rows: Array,
    scale: Array,
    begin: int,
    end: int,
    dim: int,
) -> None:
    """target = Σ scale[k]·source[rows[k]] for k from `begin` to `end`, at least one.

    It adds two rows at once, since each addition waits for the last store.
    """
    put_scaled(target, at, source, stride * rows[begin], scale[begin], dim)
    twos = begin + 1 + (end - begin - 1) // 2 * 2
    for j in range(begin + 1, twos, 2):
        one, other = np.uint64(stride * rows[j]), np.uint64(stride * rows[j + 1])
        by_one, by_other = fill(target, scale[j]), fill(target, scale[j + 1])
        for k in range(np.uint64(0), np.uint64(dim), width(target)):
            both = by_one * load(source, one + k) + by_other * load(source, other + k)
            store(target, np.uint64(at) + k, load(target, np.uint64(at) + k) + both)
    if twos < end:
        add_scaled(target, at, source, stride * rows[twos], scale[twos], dim)


@jit_inline
def correct_rates(corrected: Array, given: Array, number: int) -> None:
    """The rates that `adam` reads in step `number`, from each given (learning rate, decay)."""
    for k in range(len(given)):
        corrected[k, STEP] = given[k, 0] / (1 - BETA1 ** float(number))
        corrected[k, SCALE] = 1 / math.sqrt(1 - BETA2 ** float(number))
        corrected[k, DECAY] = given[k, 1]


STEP, SCALE, DECAY = range(3)


@jit_inline
def adam(table: Array, row: int, gradient: Array, at: int, rates: Array, dim: int) -> None:
    """Move a row against its gradient, as `engine/adam.py` says."""
    adam_of_terms(table, row, gradient, at, rates, 1.0, None, dim)


@jit_inline
def adam_of_terms(
    table: Array,
    row: int,
    gradient: Array,
    at: int,
    rates: Array,
    terms: float,
    decays: Array | None,
    dim: int,
) -> None:
    """Move a row whose weight decay the loss holds `terms` times.

    `decays` holds 1 for a column with weight decay, 0 for one without; None: all have it.
    """
    real = table.dtype.type
    step, scale = fill(table, real(rates[STEP])), fill(table, real(rates[SCALE]))
    decay = fill(table, real(rates[DECAY] * terms))
    beta1, rest1 = fill(table, real(BETA1)), fill(table, real(1 - BETA1))
    beta2, rest2 = fill(table, real(BETA2)), fill(table, real(1 - BETA2))
    epsilon, at_ = fill(table, real(EPSILON)), np.uint64(at)
    value = np.uint64(3 * dim * row)
    first = value + np.uint64(dim)
    second = first + np.uint64(dim)
    for k in range(np.uint64(0), np.uint64(dim), width(table)):
        old = load(table, value + k)
        if decays is None:
            slope = load(gradient, at_ + k) + decay * old
        else:
            slope = load(gradient, at_ + k) + decay * load(decays, k) * old
        mean = beta1 * load(table, first + k) + rest1 * slope
        square = beta2 * load(table, second + k) + rest2 * slope * slope
        store(table, first + k, mean)
        store(table, second + k, square)
        store(table, value + k, old - step * mean / (root(square) * scale + epsilon))

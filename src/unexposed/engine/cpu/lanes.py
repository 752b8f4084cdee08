"""Vectors of 64 bytes for kernels: as many numbers as one instruction works on.

`load` reads neighbouring numbers of an array as one value; values add, subtract, multiply and
divide lane by lane; `store` writes them back. A loop written with them has no remainder and no
check at run time for overlapping arrays.
"""

import operator
from collections.abc import Callable
from typing import Any

import numba.core.cgutils
import numba.core.typing.templates
import numba.extending
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

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

"""How kernels are compiled and run on threads, with a barrier and a prefetch that numba lacks."""

import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numba.core.cgutils
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from unexposed.compiled import cached

F = TypeVar("F", bound=Callable[..., Any])
cgutils: Any = numba.core.cgutils
Array = Any  # of numbers, one-dimensional unless told otherwise


def jit(function: F) -> F:
    """Compile for use in other kernels.

    Sums may be reordered (so that they use the vector units), the same way at every call; NaN and
    infinity keep their meaning.
    """
    return _compiled(function, liberties={"reassoc", "contract", "nsz"})


def jit_inline(function: F) -> F:
    """Compile as `jit`, inlined: a call would pass each array in seven parts."""
    return _compiled(function, liberties={"reassoc", "contract", "nsz"}, forceinline=True)


def jit_as_written(function: F) -> F:
    """Compile as `jit_inline`, but keep sums in the order they are written."""
    return _compiled(function, liberties={"contract"}, forceinline=True)


def jit_entry(function: F) -> F:
    """Compile as `jit`, to be called from Python without its lock, and cached on disk."""
    return _compiled(function, liberties={"reassoc", "contract", "nsz"}, inner=False)


def _compiled(
    function: F, *, liberties: set[str], inner: bool = True, forceinline: bool = False
) -> F:
    how: dict[str, Any] = {
        "nogil": True,
        "error_model": "numpy",
        "fastmath": liberties,
        "forceinline": forceinline,
        "no_cpython_wrapper": inner,  # half of the time that compilation takes
        "no_cfunc_wrapper": True,
        "_nrt": False,  # no reference counts, for which threads would contend
    }
    njit: Any = numba.njit
    return njit(**how)(function) if inner else cached(function, **how)


# Threads -------------------------------------------------------------------------------------


def on_threads(work: Callable[[int], None], n_threads: int) -> None:
    """Call work(0) … work(n_threads − 1) on a thread each, and wait for all of them."""
    others = [threading.Thread(target=work, args=(n,)) for n in range(1, n_threads)]
    for thread in others:
        thread.start()
    work(0)
    for thread in others:
        thread.join()


def _atomic(operation: str) -> Any:
    @intrinsic
    def atomic(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
        del typing_context, index, value

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            shape_of = context.make_array(signature.args[0])(context, builder, arguments[0])
            pointer = cgutils.get_item_pointer(
                context, builder, signature.args[0], shape_of, [arguments[1]]
            )
            if operation == "add":
                return builder.atomic_rmw("add", pointer, arguments[2], "seq_cst")
            if operation == "load":
                return builder.load_atomic(pointer, "seq_cst", 8)
            builder.store_atomic(arguments[2], pointer, "seq_cst", 8)
            return arguments[2]

        return types.int64(array, types.intp, types.int64), generate

    return atomic


_atomic_add, _atomic_load, _atomic_store = _atomic("add"), _atomic("load"), _atomic("store")

ARRIVED, ROUND = 0, 16  # places of the barrier, on cache lines of their own
_SPINS = 4000  # loads before a waiting thread yields its core
if sys.platform == "win32":

    @jit
    def _yield_core() -> None:
        pass
else:
    _sched_yield = types.ExternalFunction("sched_yield", types.intc())

    @jit
    def _yield_core() -> None:
        _sched_yield()


@jit
def wait_for_all(barrier: Array, n_threads: int) -> None:
    """Return when every thread has called this."""
    if n_threads == 1:
        return
    entered = _atomic_load(barrier, ROUND, 0)
    if _atomic_add(barrier, ARRIVED, 1) == n_threads - 1:
        _atomic_store(barrier, ARRIVED, 0)
        _atomic_add(barrier, ROUND, 1)
        return
    spins = 0
    while _atomic_load(barrier, ROUND, 0) == entered:
        spins += 1
        if spins > _SPINS:
            _yield_core()


def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Prefetch the cache line of an element that will be needed soon."""
    del typing_context, index

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array_type = signature.args[0]
        made = context.make_array(array_type)(context, builder, arguments[0])
        pointer = cgutils.get_item_pointer(context, builder, array_type, made, [arguments[1]])
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        prefetch = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [byte, number, number, number]),
            "llvm.prefetch.p0",
        )
        read, second_cache, data = (ir.Constant(number, c) for c in (0, 2, 1))
        builder.call(prefetch, [builder.bitcast(pointer, byte), read, second_cache, data])
        return context.get_dummy_value()

    return types.none(array, types.intp), generate


prefetch: Any = intrinsic(_prefetch)


def _call_python(typing_context: Any, address: Any, number: Any) -> Any:
    """Call the function at this address, made by `ctypes`, with a number; it gives another."""
    del typing_context, address, number

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        word = ir.IntType(64)
        pointer = builder.inttoptr(arguments[0], ir.FunctionType(word, [word]).as_pointer())
        return builder.call(pointer, [arguments[1]])

    return types.int64(types.int64, types.int64), generate


call_python: Any = intrinsic(_call_python)

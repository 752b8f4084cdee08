"""A builder of ONNX graphs."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.extras import optional

LAST = np.array([-1], dtype=np.int64)  # the last axis


class Graph:
    """Nodes, constants and outputs of a graph with two inputs.

    The inputs are int64 indices: `users` (batch) and `items` (batch, candidates).
    """

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self.outputs: list[str] = []

    def constant(self, name: str, values: Any) -> str:
        array = np.asarray(values)
        self.constants[name] = array if array.dtype == np.int64 else array.astype(np.float32)
        return name

    def add(self, operator: str, *inputs: str, to: str, **attributes: Any) -> str:
        helper = optional("onnx.helper", extra="export")
        self.nodes.append(helper.make_node(operator, list(inputs), [to], **attributes))
        return to

    def output(self, operator: str, *inputs: str, to: str, **attributes: Any) -> str:
        self.outputs.append(to)
        return self.add(operator, *inputs, to=to, **attributes)

    def product(self, items: str, users: str, *, to: str) -> str:
        """(batch, candidates, dim) · (batch, dim) → (batch, candidates)."""
        self.constant("last", LAST)
        self.add("Unsqueeze", users, "last", to=f"{to}_column")
        self.add("MatMul", items, f"{to}_column", to=f"{to}_wide")
        return self.add("Squeeze", f"{to}_wide", "last", to=to)

    def table(self, name: str, values: NDArray[Any], *, to: str) -> None:
        """Add an output that looks up a table: (items,) or (users, items)."""
        self.constant(name, values)
        if values.ndim == 1:
            self.output("Gather", name, "items", to=to)
        else:
            self.add("Gather", name, "users", to=f"{name}_row")
            self.output("GatherElements", f"{name}_row", "items", to=to, axis=1)

"""The scorer of a model as an ONNX file: indices in, score, relevance and exposure out.

Inputs: `users` (batch) and `items` (batch, candidates), int64 indices. Outputs: (batch, candidates)
floats. One user with a list of candidates is a batch of one.
"""

from pathlib import Path
from typing import Any

import numpy as np

from unexposed.errors import InputError
from unexposed.extras import optional
from unexposed.model.graph import Graph
from unexposed.model.model import Model
from unexposed.model.recommend import relevance

OPSET, IR_VERSION = 17, 8  # what runtimes of 2022 and later read
MOST_BYTES = 2_000_000_000  # the limit of a protobuf file
TOLERANCE = 1e-4  # of the largest score: float32 sums in another order


def scorer(model: Model) -> Any:
    """The ONNX model."""
    onnx = optional("onnx", extra="export")
    helper = optional("onnx.helper", extra="export")
    from_array = optional("onnx.numpy_helper", extra="export").from_array
    graph = Graph()
    model.method.add_score(graph, model.parameters)
    _add_relevance(graph, model)
    model.method.add_exposure(graph, model.parameters)
    size = sum(array.nbytes for array in graph.constants.values())
    if size > MOST_BYTES:
        raise InputError(
            f"the scorer takes {size / 1e9:.1f} GB, but an ONNX file can hold at most "
            f"{MOST_BYTES / 1e9:.0f} GB; use --format npy or usearch"
        )
    floats, integers = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    made = helper.make_model(
        helper.make_graph(
            graph.nodes,
            f"unexposed {model.method.name}",
            [
                helper.make_tensor_value_info("users", integers, ["batch"]),
                helper.make_tensor_value_info("items", integers, ["batch", "candidates"]),
            ],
            [
                helper.make_tensor_value_info(name, floats, ["batch", "candidates"])
                for name in graph.outputs
            ],
            [from_array(array, name) for name, array in graph.constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="unexposed",
    )
    onnx.checker.check_model(made, full_check=True)
    return made


def _add_relevance(graph: Graph, model: Model) -> None:
    """Add the relevance, as `recommend.relevance` computes it."""
    if model.method.scale == "logit":
        graph.output("Sigmoid", "score", to="relevance")
    elif model.method.scale != "order":
        graph.output("Identity", "score", to="relevance")


def check_scorer(model: Model, path: Path) -> dict[str, Any]:
    """Compare the file with the model on some pairs; gives the runtime and the difference."""
    rng = np.random.default_rng(0)
    n_users, n_items = len(model.user_ids), len(model.item_ids)
    users = rng.integers(n_users, size=min(n_users, 50))
    items = rng.integers(n_items, size=(len(users), min(n_items, 50)))
    run, by = _runner(path)
    found = run({"users": users, "items": items})
    rows = users.astype(np.int32)
    score = model.scores(rows)
    expected = {
        "score": score,
        "relevance": relevance(model.method, score),
        "exposure": model.method.exposure(model.parameters, rows),
    }
    largest = 0.0
    for name, block in expected.items():
        if block is None:
            continue
        wanted = np.take_along_axis(block, items, axis=1)
        scale = max(1.0, float(np.abs(wanted).max()))
        largest = max(largest, float(np.abs(found[name] - wanted).max()) / scale)
    if not largest <= TOLERANCE:  # NaN too
        raise InputError(
            f"the exported scorer of {model.method.name} differs from the model by {largest:.1e}, "
            "so nothing was written; please report this"
        )
    return {"outputs": list(found), "largest_difference": largest, "checked_by": by}


def _runner(path: Path) -> tuple[Any, str]:
    """onnxruntime if installed, else onnx's own evaluator, which is slow but sufficient."""
    try:
        from onnxruntime import InferenceSession
    except ImportError:
        evaluator = optional("onnx.reference", extra="export").ReferenceEvaluator(str(path))
        names, by = list(evaluator.output_names), "onnx's reference evaluator"
    else:
        evaluator = InferenceSession(str(path), providers=["CPUExecutionProvider"])
        names, by = [output.name for output in evaluator.get_outputs()], "onnxruntime"
    return lambda inputs: dict(zip(names, evaluator.run(None, inputs), strict=True)), by

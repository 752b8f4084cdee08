"""The scorer of a model as an ONNX graph: indices in, score, relevance and exposure out.

Inputs: `users` (batch) and `items` (batch, candidates), int64 indices. Outputs: (batch, candidates)
floats. One user with a list of candidates is a batch of one.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from unexposed.errors import InputError
from unexposed.extras import optional
from unexposed.methods.cjmf import CJMF
from unexposed.methods.expomf import ExpoMF
from unexposed.methods.popularity import Popularity
from unexposed.methods.ubo import UBO
from unexposed.recommender import Model
from unexposed.serving import relevance

OPSET, IR_VERSION = 17, 8  # what runtimes of 2022 and later read
MOST_BYTES = 2_000_000_000  # a protobuf file ends at two gigabytes
LAST = np.array([-1], dtype=np.int64)  # the last axis
TOLERANCE = 1e-4  # of the largest score: float32 sums in another order


class Graph:
    """Nodes and constants in the order they are added."""

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


def scorer(model: Model) -> Any:
    """The ONNX model."""
    onnx = optional("onnx", extra="export")
    helper = optional("onnx.helper", extra="export")
    from_array = optional("onnx.numpy_helper", extra="export").from_array
    graph = Graph()
    _add_score(graph, model)
    _add_relevance(graph, model)
    _add_exposure(graph, model)
    size = sum(array.nbytes for array in graph.constants.values())
    if size > MOST_BYTES:
        raise InputError(
            f"the scorer holds {size / 1e9:.1f} GB, and an ONNX file {MOST_BYTES / 1e9:.0f} GB at "
            "most; use --format npy or usearch"
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


def _add_score(graph: Graph, model: Model) -> None:
    parameters, method = model.parameters, model.method
    if isinstance(method, CJMF):
        return _add_mean_of_submodels(graph, model)
    if isinstance(method, Popularity):
        graph.constant("item_counts", parameters["item_counts"])
        graph.output("Gather", "item_counts", "items", to="score")
        return None
    if "user_factors" not in parameters:
        raise InputError(f"{method.name} has no scorer to export; recommend writes its lists")
    graph.constant("user_factors", parameters["user_factors"])
    graph.constant("item_factors", parameters["item_factors"])
    graph.add("Gather", "user_factors", "users", to="user")  # (batch, dim)
    graph.add("Gather", "item_factors", "items", to="item")  # (batch, candidates, dim)
    graph.outputs.append(_product(graph, "item", "user", to="score"))
    return None


def _add_mean_of_submodels(graph: Graph, model: Model) -> None:
    """mean_c σ(ω_ucᵀω_ic), the vectors of the sub-models in rows."""
    graph.constant("user_factors", model.parameters["submodel_user_factors"])
    graph.constant("item_factors", model.parameters["submodel_item_factors"])
    graph.constant("last", LAST)
    graph.constant("candidate", np.array([1], dtype=np.int64))
    graph.add("Gather", "user_factors", "users", to="user")  # (batch, C, dim)
    graph.add("Gather", "item_factors", "items", to="item")  # (batch, candidates, C, dim)
    graph.add("Unsqueeze", "user", "candidate", to="user_each")
    graph.add("Mul", "item", "user_each", to="products")
    graph.add("ReduceSum", "products", "last", to="logits", keepdims=0)
    graph.add("Sigmoid", "logits", to="relevances")
    graph.output("ReduceMean", "relevances", to="score", axes=[-1], keepdims=0)


def _add_relevance(graph: Graph, model: Model) -> None:
    """As `serving.relevance`: none where a score only orders."""
    if model.method.scale == "logit":
        graph.output("Sigmoid", "score", to="relevance")
    elif model.method.scale != "order":
        graph.output("Identity", "score", to="relevance")


def _add_exposure(graph: Graph, model: Model) -> None:
    parameters, method = model.parameters, model.method
    if isinstance(method, UBO):
        _add_gated_exposure(graph, model, offset=method.exposure_offset)
    elif isinstance(method, ExpoMF):
        _add_exposure_given_no_click(graph, model, precision=method.click_precision)
    elif "exposure" in parameters:
        graph.constant("exposure_table", parameters["exposure"])
        if parameters["exposure"].ndim == 1:
            graph.output("Gather", "exposure_table", "items", to="exposure")
        else:
            graph.add("Gather", "exposure_table", "users", to="exposure_row")
            graph.output("GatherElements", "exposure_row", "items", to="exposure", axis=1)


def _add_gated_exposure(graph: Graph, model: Model, *, offset: float) -> None:
    """m = r·σ(e_uᵀω_i + offset) + (1 − r)·θ_i = θ_i + r·(σ(…) − θ_i), r = σ(wᵀω_i + b)."""
    parameters = model.parameters
    for name in ("exposure_user_factors", "gate_weight", "gate_bias", "popularity"):
        graph.constant(name, parameters[name])
    graph.constant("offset", np.float32(offset))
    graph.add("MatMul", "item", "gate_weight", to="gate_product")
    graph.add("Add", "gate_product", "gate_bias", to="gate_logit")
    graph.add("Sigmoid", "gate_logit", to="gate")
    graph.add("Gather", "exposure_user_factors", "users", to="seer")
    _product(graph, "item", "seer", to="seen_product")
    graph.add("Add", "seen_product", "offset", to="seen_logit")
    graph.add("Sigmoid", "seen_logit", to="seen")
    graph.add("Gather", "popularity", "items", to="popular")
    graph.add("Sub", "seen", "popular", to="difference")
    graph.add("Mul", "gate", "difference", to="gated")
    graph.output("Add", "popular", "gated", to="exposure")


def _add_exposure_given_no_click(graph: Graph, model: Model, *, precision: float) -> None:
    """σ( logit μ_i + ½·log(λ_y/2π) − ½·λ_y·score² )."""
    prior = logit(model.parameters["prior_exposure"]) + np.log(precision / (2 * np.pi)) / 2
    graph.constant("prior_log_odds", prior)
    graph.constant("half_precision", np.float32(precision / 2))
    graph.add("Gather", "prior_log_odds", "items", to="prior")
    graph.add("Mul", "score", "score", to="square")
    graph.add("Mul", "half_precision", "square", to="penalty")
    graph.add("Sub", "prior", "penalty", to="log_odds")
    graph.output("Sigmoid", "log_odds", to="exposure")


def _product(graph: Graph, items: str, users: str, *, to: str) -> str:
    """(batch, candidates, dim) · (batch, dim) → (batch, candidates)."""
    graph.constant("last", LAST)
    graph.add("Unsqueeze", users, "last", to=f"{to}_column")
    graph.add("MatMul", items, f"{to}_column", to=f"{to}_wide")
    return graph.add("Squeeze", f"{to}_wide", "last", to=to)


def check_scorer(model: Model, path: Path) -> dict[str, Any]:
    """Run the file on some pairs and compare with the model; who ran it, and how far apart."""
    rng = np.random.default_rng(0)
    n_users, n_items = len(model.user_ids), len(model.item_ids)
    users = rng.integers(n_users, size=min(n_users, 50))
    items = rng.integers(n_items, size=(len(users), min(n_items, 50)))
    run, by = _runner(path)
    found = run({"users": users, "items": items})
    rows = users.astype(np.int32)
    score = model.method.scores(model.parameters, rows)
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
    """onnxruntime if it is here, else onnx's own evaluator: slow, and enough for a check."""
    try:
        from onnxruntime import InferenceSession
    except ImportError:
        evaluator = optional("onnx.reference", extra="export").ReferenceEvaluator(str(path))
        names, by = list(evaluator.output_names), "onnx's reference evaluator"
    else:
        evaluator = InferenceSession(str(path), providers=["CPUExecutionProvider"])
        names, by = [output.name for output in evaluator.get_outputs()], "onnxruntime"
    return lambda inputs: dict(zip(names, evaluator.run(None, inputs), strict=True)), by

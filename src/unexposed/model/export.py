"""Export a model to other servers: its vectors, a search index, or a scorer of its vectors."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed import settings
from unexposed.data.ids import column
from unexposed.data.pairs import Indices
from unexposed.data.write import as_os_error, write_parquet
from unexposed.errors import InputError, did_you_mean
from unexposed.files import write_folder
from unexposed.late import optional
from unexposed.maths.relevance import Vectors
from unexposed.model.model import Model
from unexposed.model.recommend import check_k
from unexposed.model.save import ids_as_json
from unexposed.version import __version__

ABOUT = "export.json"
FORMAT = "unexposed export"

CONNECTIVITY = 32  # twice usearch's default: inner products are harder to search than distances
WIDE = 256  # a search width that finds nearly all of the best items
MEASURED_USERS = 1000
FEW_ITEMS = 10_000  # indexed by one thread: the order of insertion, and so the file, is the same

OPSET, IR_VERSION = 17, 8  # of ONNX: what runtimes of 2022 and later read
MOST_BYTES = 2_000_000_000  # the limit of a protobuf file
LAST_AXIS = np.array([-1], dtype=np.int64)


def vectors(model: Model) -> Vectors:
    """The vectors of a model whose score is ω_uᵀω_i."""
    found = model.method.vectors(model.parameters)
    if found is None:
        raise InputError(
            f"{model.method.name} has no vectors: its score is not a product of a user vector and "
            "an item vector; export another method, or write recommendations"
        )
    return Vectors(*(np.ascontiguousarray(table, dtype=np.float32) for table in found))


def export_model(model: Model, folder: str | Path, *, kind: str, k: int = 10) -> dict[str, Any]:
    """Write an export folder atomically; gives a description of it, with measurements."""
    check_export(folder := Path(folder), kind)
    check_k(k, len(model.item_ids))
    about: dict[str, Any] = {
        "format": FORMAT,
        "kind": kind,
        "unexposed": __version__,
        "method": model.method.name,
        "settings": settings.values(model.method),
        "users": len(model.user_ids),
        "items": len(model.item_ids),
    }

    def write(place: Path) -> None:
        about.update(KINDS[kind](model, place, k))
        (place / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")

    write_folder(folder, write)
    return about


def check_export(folder: Path, kind: str) -> None:
    """Refuse an unknown kind, and a place that holds anything but an export of this kind."""
    if kind not in KINDS:
        raise InputError(f"no export format {kind!r}; {did_you_mean(kind, KINDS)}")
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        before = about["kind"] if about["format"] == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError):
        before = None
    if before is None:
        raise InputError(f"{folder} exists and is not an export; choose another place")
    if before != kind:
        raise InputError(f"{folder} holds an export as {before}; choose another place for {kind}")


# The formats


def _write_parquet(model: Model, folder: Path, k: int) -> dict[str, Any]:
    """Write users.parquet and items.parquet: a raw id and its vector in each row."""
    import polars as pl

    del k
    found = vectors(model)
    for name, ids, table in (
        ("user", model.user_ids, found.users),
        ("item", model.item_ids, found.items),
    ):
        raw = column(ids.values)
        if raw.dtype == pl.Object:
            raise InputError(
                f"the {name} ids have several types, which a Parquet column cannot hold; "
                "use --format npy, which keeps ids in JSON"
            )
        frame = pl.DataFrame({name: raw, "vector": table})
        write_parquet(frame, folder / f"{name}s.parquet")
    return {"dim": found.users.shape[1]}


def _write_npy(model: Model, folder: Path, k: int) -> dict[str, Any]:
    """Write user_vectors.npy and item_vectors.npy, with the ids of their rows."""
    del k
    found = vectors(model)
    np.save(folder / "user_vectors.npy", found.users)
    np.save(folder / "item_vectors.npy", found.items)
    _write_ids(model, folder)
    return {"dim": found.users.shape[1]}


def _write_usearch(model: Model, folder: Path, k: int) -> dict[str, Any]:
    """Write items.usearch for maximum inner product, the users' vectors to query it, and ids.

    A score is 1 − distance + ω_uᵀmean, with the mean of the item vectors in item_mean.npy.
    """
    usearch = optional("usearch.index", extra="export")
    found = vectors(model)
    mean = found.items.mean(axis=0)
    index = build_index(usearch, found.items - mean)
    with as_os_error():
        index.save(folder / "items.usearch")
    np.save(folder / "user_vectors.npy", found.users)
    np.save(folder / "item_mean.npy", mean)
    _write_ids(model, folder)
    again = usearch.Index.restore(folder / "items.usearch")  # as a server will load it
    measured = {"recall": index_recall(again, found, k)}
    again.expansion_search = WIDE
    measured["recall_wide"] = index_recall(again, found, k)
    return {"dim": found.users.shape[1], "k": k, **measured, "expansion_search_wide": WIDE}


def build_index(usearch: Any, items: NDArray[np.float32]) -> Any:
    """An index whose distance is 1 − query·item, for vectors of any length.

    Subtract the mean from the vectors first: the products of a query change by a constant, so
    their order stays. Without this, users of a logistic model point away from all items, and the
    search gets stuck among the worst items, which are nearest to each other.
    """
    index = usearch.Index(ndim=items.shape[1], metric="ip", dtype="f32", connectivity=CONNECTIVITY)
    threads = 1 if len(items) <= FEW_ITEMS else 0  # 0: all cores
    index.add(np.arange(len(items), dtype=np.uint64), items, threads=threads)
    return index


def _write_onnx(model: Model, folder: Path, k: int) -> dict[str, Any]:
    """Write scorer.onnx, and the ids: the score, and the relevance if the method estimates it.

    Inputs: `users` (batch) and `items` (batch, candidates), int64 indices. Outputs: (batch,
    candidates) floats. One user with a list of candidates is a batch of one.
    """
    del k
    onnx, helper = (optional(name, extra="export") for name in ("onnx", "onnx.helper"))
    from_array = optional("onnx.numpy_helper", extra="export").from_array
    found, node = vectors(model), helper.make_node
    if (size := found.users.nbytes + found.items.nbytes) > MOST_BYTES:
        raise InputError(
            f"the scorer takes {size / 1e9:.1f} GB, but an ONNX file can hold at most "
            f"{MOST_BYTES / 1e9:.0f} GB; use --format npy or usearch"
        )
    nodes = [
        node("Gather", ["user_factors", "users"], ["user"]),  # (batch, dim)
        node("Gather", ["item_factors", "items"], ["item"]),  # (batch, candidates, dim)
        node("Unsqueeze", ["user", "last"], ["column"]),
        node("MatMul", ["item", "column"], ["wide"]),
        node("Squeeze", ["wide", "last"], ["score"]),
    ]
    outputs = {"logit": "Sigmoid", "probability": "Identity"}
    names = ["score"]
    if (operator := outputs.get(model.method.scale)) is not None:
        nodes.append(node(operator, ["score"], ["relevance"]))
        names.append("relevance")
    integers, floats = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT
    shapes = {"users": ["batch"], "items": ["batch", "candidates"]}
    constants = {"user_factors": found.users, "item_factors": found.items, "last": LAST_AXIS}
    made = helper.make_model(
        helper.make_graph(
            nodes,
            f"unexposed {model.method.name}",
            [helper.make_tensor_value_info(name, integers, at) for name, at in shapes.items()],
            [helper.make_tensor_value_info(name, floats, shapes["items"]) for name in names],
            [from_array(array, name) for name, array in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="unexposed",
    )
    onnx.checker.check_model(made, full_check=True)
    onnx.save(made, folder / "scorer.onnx")
    _write_ids(model, folder)
    return {"outputs": names}


KINDS: dict[str, Callable[[Model, Path, int], dict[str, Any]]] = {
    "parquet": _write_parquet,
    "npy": _write_npy,
    "usearch": _write_usearch,
    "onnx": _write_onnx,
}


def _write_ids(model: Model, folder: Path) -> None:
    """Write raw ids by index as JSON lists, since ids may contain line ends."""
    for name, ids in (("user", model.user_ids), ("item", model.item_ids)):
        text = json.dumps(ids_as_json(ids))  # ASCII keeps lone surrogates too
        (folder / f"{name}_ids.json").write_text(text + "\n", encoding="utf-8")


def index_recall(index: Any, found: Vectors, k: int) -> float:
    """The share of a user's k best items that the index finds, as a mean over some users."""
    chosen = np.linspace(0, len(found.users) - 1, MEASURED_USERS).astype(np.int64)
    queries = found.users[np.unique(chosen)]
    shares = []
    for query in queries:
        exact = found.items @ query
        matches = index.search(query, k)
        got: Indices = matches.keys.astype(np.int32)
        # equally good items count alike; the last bits depend on the order of sums
        least = np.partition(exact, -k)[-k] - 1e-5 * np.abs(exact).max()
        shares.append(np.count_nonzero(exact[got] >= least) / k)
    return float(np.mean(shares))


def describe(about: dict[str, Any], folder: Path) -> list[str]:
    """Lines that describe an export."""
    sizes = f"{about['users']:,} users and {about['items']:,} items"
    lines = [f"{folder}: {about['method']} as {about['kind']}, {sizes}"]
    if "recall" in about:
        lines.append(
            f"recall@{about['k']} against exact search: {about['recall']:.3f} as the index loads, "
            f"{about['recall_wide']:.3f} with expansion_search = {about['expansion_search_wide']}"
        )
    return lines

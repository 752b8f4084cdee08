"""Exports score and rank as the model does, are written atomically and describe themselves."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import polars as pl
import pyarrow.parquet
import pytest

from command import ended
from small import WITH_VECTORS, clicks_of, fitted
from unexposed.data.ids import Ids
from unexposed.errors import InputError
from unexposed.maths.relevance import Vectors
from unexposed.methods import METHODS
from unexposed.model import export
from unexposed.model.export import build_index, export_model, index_recall
from unexposed.model.model import Model
from unexposed.model.recommend import relevance

MEASURED = {"usearch": "recall@10 against exact search"}
AWKWARD = ["a,b", 'quote"', "new\nline", "<b>", "\U0001f600", "שלום", " ", "007", "x" * 100_000]


@pytest.fixture(scope="module")
def model(small_world) -> Model:
    return fitted("ubo", small_world.clicks(0), epochs=5)


def with_ids(raw: list[object]) -> Model:
    clicks = clicks_of(np.eye(len(raw)))
    clicks = replace(clicks, user_ids=Ids.of(raw), item_ids=Ids.of(raw))
    return fitted("mf", clicks, epochs=1)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_score_of_a_method_with_vectors_is_their_product(small_world):
    users = np.arange(20, dtype=np.int32)
    for name in METHODS:
        trained = fitted(name, small_world.clicks(0), epochs=2)
        if name not in WITH_VECTORS:
            with pytest.raises(InputError, match=f"{name} has no vectors"):
                export.vectors(trained)
            continue
        found = export.vectors(trained)
        scores = trained.scores(users)
        np.testing.assert_allclose(found.users[users] @ found.items.T, scores, rtol=1e-4, atol=1e-6)


def test_parquet_holds_each_id_with_its_vector(model, tmp_path):
    export_model(model, tmp_path / "out", kind="parquet")
    users = pl.read_parquet(tmp_path / "out" / "users.parquet")
    items = pyarrow.parquet.read_table(tmp_path / "out" / "items.parquet").to_pydict()
    assert users["user"].to_list() == model.user_ids.values.tolist()
    assert items["item"] == model.item_ids.values.tolist()
    vectors = np.array(items["vector"], dtype=np.float32)
    np.testing.assert_array_equal(vectors, model.parameters["item_factors"])
    np.testing.assert_array_equal(users["vector"].to_numpy(), model.parameters["user_factors"])


def test_the_index_gives_the_scores_and_nearly_all_of_the_best_items(model, tmp_path):
    from usearch.index import Index

    about = export_model(model, tmp_path / "out", kind="usearch")
    assert about["recall"] > 0.95
    index = Index.restore(tmp_path / "out" / "items.usearch")
    user = np.load(tmp_path / "out" / "user_vectors.npy")[7]
    matches = index.search(user, 5)
    score = 1 - matches.distances + user @ np.load(tmp_path / "out" / "item_mean.npy")
    best, exact = model.top(np.array([7], dtype=np.int32), 5, hide_clicked=False)
    assert matches.keys.tolist() == best[0].tolist()
    np.testing.assert_allclose(score, exact[0], atol=1e-5)


@pytest.mark.parametrize("name", ["ubo", "mf", "wmf"])
def test_the_onnx_scorer_gives_the_scores_of_the_model_on_the_runtime_of_servers(
    name, small_world, tmp_path, monkeypatch
):
    trained = fitted(name, small_world.clicks(0), epochs=5)
    about = export_model(trained, tmp_path / "out", kind="onnx")
    users, items = np.array([3, 0, 3]), np.array([[0, 1, 2, 59], [5, 5, 5, 5], [9, 8, 7, 6]])
    for rows in (slice(None), slice(1)):  # one user with candidates is a batch of one
        session = onnxruntime.InferenceSession(
            str(tmp_path / "out" / "scorer.onnx"), providers=["CPUExecutionProvider"]
        )
        values = session.run(about["outputs"], {"users": users[rows], "items": items[rows]})
        score = np.take_along_axis(trained.scores(users[rows].astype(np.int32)), items[rows], 1)
        np.testing.assert_allclose(values[0], score, rtol=1e-5, atol=1e-6)
        wanted = [score, relevance(trained.method, score)]
        np.testing.assert_allclose(values[-1], wanted[len(values) - 1], rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(export, "MOST_BYTES", 1000)
    with pytest.raises(InputError, match="use --format npy or usearch"):
        export_model(trained, tmp_path / "other", kind="onnx")


def away_from_all_items() -> Vectors:
    """Users who score every item below zero, as a logistic loss on sparse clicks leaves them."""
    rng = np.random.default_rng(0)
    items = rng.normal(0, 0.25, (400, 24)).astype(np.float32)
    users = rng.normal(0, 0.25, (100, 24)).astype(np.float32)
    items[:, 0] += 1.5
    users[:, 0] -= 1.5
    return Vectors(users, items)


def test_an_index_of_centred_vectors_finds_what_one_of_bare_vectors_misses():
    import usearch.index

    found = away_from_all_items()
    centred = build_index(usearch.index, found.items - found.items.mean(axis=0))
    bare = build_index(usearch.index, found.items)
    assert index_recall(centred, found, 10) > 0.98
    assert index_recall(bare, found, 10) < 0.8


@pytest.mark.parametrize("kind", sorted(export.KINDS))
def test_an_export_describes_itself_and_replaces_an_older_one_of_its_kind(kind, model, tmp_path):
    about = export_model(model, tmp_path / "out", kind=kind)
    assert (about["kind"], about["method"], about["users"]) == (kind, "ubo", len(model.user_ids))
    assert json.loads((tmp_path / "out" / "export.json").read_text()) == about
    said = "\n".join(export.describe(about, tmp_path / "out"))
    assert f"ubo as {kind}" in said
    assert MEASURED.get(kind, "") in said
    before = names(tmp_path / "out")
    export_model(model, tmp_path / "out", kind=kind)
    assert names(tmp_path / "out") == before
    assert names(tmp_path) == ["out"]


def test_awkward_ids_survive_and_mixed_types_go_to_json_only(tmp_path):
    awkward = with_ids(AWKWARD)
    export_model(awkward, tmp_path / "parquet", kind="parquet", k=2)
    export_model(awkward, tmp_path / "npy", kind="npy", k=2)
    assert pl.read_parquet(tmp_path / "parquet" / "items.parquet")["item"].to_list() == AWKWARD
    assert json.loads((tmp_path / "npy" / "item_ids.json").read_text()) == AWKWARD
    mixed = with_ids([1, "a", ("b", 2)])
    export_model(mixed, tmp_path / "npy", kind="npy", k=1)
    assert json.loads((tmp_path / "npy" / "user_ids.json").read_text())[:2] == [1, "a"]
    with pytest.raises(InputError, match="several types.*use --format npy"):
        export_model(mixed, tmp_path / "mixed", kind="parquet", k=1)
    assert names(tmp_path) == ["npy", "parquet"]


@pytest.mark.parametrize(
    ("place", "kind", "refusal"),
    [
        (".", "npy", "is not an export; choose another place"),
        ("thesis.tex", "npy", "is not an export; choose another place"),
        ("model.safetensors", "npy", "is not an export; choose another place"),
        ("out", "onnx", "holds an export as npy; choose another place for onnx"),
        ("out", "npy", "cannot write .*: it holds 'note.txt', which would be"),
        ("new", "onx", "no export format 'onx'; did you mean 'onnx'"),
    ],
)
def test_an_export_never_replaces_anything_else(place, kind, refusal, model, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    model.save(tmp_path / "model")
    export_model(model, tmp_path / "out", kind="npy")
    (tmp_path / "out" / "note.txt").write_text("years of work")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=refusal):
        export_model(model, tmp_path / place, kind=kind)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_command_prints_one_json_document_and_refuses_before_it_loads(model, tmp_path, capsys):
    model.save(tmp_path / "model")
    words = ["export", str(tmp_path / "model"), "--to", str(tmp_path / "out"), "--format"]
    assert ended(*words, "usearch", "-k", "5", "--json") == 0
    about = json.loads(capsys.readouterr().out)
    assert about == json.loads((tmp_path / "out" / "export.json").read_text())
    assert about["k"] == 5
    assert ended(*words, "usearch", "-k", "0") == 2
    assert "k must be between 1 and" in capsys.readouterr().err
    words[1] = str(tmp_path / "no model")
    assert ended(*words, "onx") == 2
    assert capsys.readouterr() == ("", "error: no export format 'onx'; did you mean 'onnx'?\n")

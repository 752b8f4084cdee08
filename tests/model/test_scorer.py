"""The ONNX scorer gives what the model gives, on the runtime that servers use."""

import sys

import numpy as np
import onnxruntime
import pytest

from small import WITH_SCORER, fitted, quick
from unexposed.errors import InputError
from unexposed.model import scorer
from unexposed.model.export import export_model
from unexposed.training.side import Side

USERS = np.array([3, 0, 3], dtype=np.int64)
ITEMS = np.array([[0, 1, 2, 59], [5, 5, 5, 5], [9, 8, 7, 6]], dtype=np.int64)


@pytest.fixture(scope="module")
def ubo(small_world):
    return fitted("ubo", small_world.clicks(0), epochs=2)


def run(path, users=USERS, items=ITEMS):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()]
    values = session.run(None, {"users": users, "items": items})
    return dict(zip(outputs, values, strict=True))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {}) for name in (*WITH_SCORER, "ubo with items")),
        ("ubo", {"exposure_offset": 1.5}),
    ],
)
def test_the_exported_scorer_gives_the_scores_and_exposures_of_the_model(
    name, settings, small_world, tmp_path
):
    model = fitted(name, small_world.clicks(0), epochs=5, **settings)
    export_model(model, tmp_path / "out", kind="onnx")
    found = run(tmp_path / "out" / "scorer.onnx")
    raw_users = np.repeat(model.user_ids.values[USERS], ITEMS.shape[1]).tolist()
    raw_items = model.item_ids.values[ITEMS.ravel()].tolist()
    score = model.score(raw_users, raw_items).reshape(ITEMS.shape)
    np.testing.assert_allclose(found["score"], score, rtol=1e-5, atol=1e-6)
    scale = model.method.scale
    assert ("relevance" in found) == (scale != "order")
    if scale != "order":
        relevance = 1 / (1 + np.exp(-score.astype(np.float64))) if scale == "logit" else score
        np.testing.assert_allclose(found["relevance"], relevance, rtol=1e-5)
    if not model.has_exposure:
        assert "exposure" not in found
        return
    exposure = model.exposure(raw_users, raw_items).reshape(ITEMS.shape)
    # the absolute error of the runtime's sigmoid is 1e-7
    np.testing.assert_allclose(found["exposure"], exposure, rtol=1e-5, atol=3e-7)
    assert np.ptp(exposure) > 0  # exposures differ, so a wrong one shows


def test_without_onnxruntime_onnx_itself_checks_the_scorer(ubo, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    about = export_model(ubo, tmp_path / "out", kind="onnx")
    assert about["checked_by"] == "onnx's reference evaluator"
    assert about["largest_difference"] < 1e-5


def test_an_exposure_of_every_pair_is_exported_and_one_user_is_a_batch_of_one(
    small_world, tmp_path
):
    clicks = small_world.clicks(0)
    table = np.random.default_rng(0).uniform(0.1, 1, (clicks.n_users, clicks.n_items))
    model = quick("umf", epochs=2).fit(clicks, side=Side(exposure=table))
    export_model(model, tmp_path / "out", kind="onnx")
    for n in (1, 60):
        items = np.arange(n)[None, :]
        found = run(tmp_path / "out" / "scorer.onnx", USERS[:1], items)
        np.testing.assert_allclose(found["exposure"], table[USERS[:1, None], items], rtol=1e-6)


@pytest.mark.parametrize("name", ["score", "relevance", "exposure"])
def test_a_scorer_that_differs_from_the_model_is_not_written(name, ubo, tmp_path, monkeypatch):
    runner = scorer._runner

    def wrong(path):
        right, by = runner(path)
        return lambda inputs: {k: v + 0.01 * (k == name) for k, v in right(inputs).items()}, by

    monkeypatch.setattr(scorer, "_runner", wrong)
    with pytest.raises(InputError, match="differs from the model by 1.0e-02"):
        export_model(ubo, tmp_path / "out", kind="onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_method_without_a_scorer_and_too_large_tables_are_refused(
    small_world, ubo, tmp_path, monkeypatch
):
    with pytest.raises(InputError, match="random has no scorer to export"):
        export_model(fitted("random", small_world.clicks(0)), tmp_path / "out", kind="onnx")
    monkeypatch.setattr(scorer, "MOST_BYTES", 1000)
    with pytest.raises(InputError, match="use --format npy or usearch"):
        export_model(ubo, tmp_path / "out", kind="onnx")
    assert list(tmp_path.iterdir()) == []

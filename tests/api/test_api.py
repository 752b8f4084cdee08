"""The public functions take names, files, frames or objects, and answer with frames."""

import json

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import unexposed as ux
from small import quick
from unexposed.cli import app
from unexposed.evaluation.describe import describe
from unexposed.progress import Silent


@pytest.fixture(scope="module")
def split(small_world):
    return small_world.split(seed=0)


@pytest.fixture(scope="module")
def model(split):
    return quick("umf", epochs=10).fit(split.train, split.held_out, progress=Silent())


@pytest.fixture(scope="module")
def judged_frame(split):
    judged = split.judged
    return pl.DataFrame({"user": judged.users, "item": judged.items, "relevance": judged.relevant})


def test_evaluate_answers_with_intervals_and_strata_as_the_command_does(model, split):
    found = ux.evaluate(model, split.judged, "catalogue")
    document = describe(model, split.judged, ux.PROTOCOLS["catalogue"])
    assert json.dumps(found.document) == json.dumps(document)
    frame = found.frame()
    gain = ["popularity", "difference", "difference_low", "difference_high", "p_value"]
    assert frame.columns == ["metric", "mean", "low", "high", *gain, "head", "middle", "tail"]
    beside = document["beside"]["popularity"]["ndcg@10"]
    assert frame.row(0)[4:9] == (
        *(beside["popularity"], beside["difference"], *beside["ci95"]),
        beside["p_value"],
    )
    assert str(found.verdict) in found._repr_html_()
    assert frame["metric"].to_list() == list(document["metrics"])
    assert (frame["low"] <= frame["mean"]).all()
    assert (frame["mean"] <= frame["high"]).all()
    assert frame["tail"][0] == document["by_popularity"]["tail"]["metrics"]["ndcg@10"]
    assert found.by_user().shape == (len(found.users), 1 + len(found.values))
    assert found.by_user()["ndcg@10"].mean() == pytest.approx(found.means()["ndcg@10"])
    assert repr(found).startswith("Evaluation(umf by catalogue, ")


def test_evaluate_takes_a_frame_a_file_and_a_folder_alike(model, split, judged_frame, tmp_path):
    model.save(tmp_path / "model")
    judged_frame.write_parquet(tmp_path / "judged.parquet")
    wanted = ux.evaluate(model, split.judged).means()
    renamed = judged_frame.rename({"user": "buyer"}).to_pandas()
    for one, judged, columns in (
        (model, judged_frame, {}),
        (str(tmp_path / "model"), tmp_path / "judged.parquet", {}),
        (model, renamed, {"user": "buyer"}),
    ):
        assert ux.evaluate(one, judged, **columns).means() == wanted
    rated = judged_frame.select("user", "item", rating=pl.col("relevance") * 5)
    with pytest.warns(ux.LogWarning, match="assumed") as caught:
        assert ux.evaluate(model, rated).means() == wanted
    assert caught[0].filename == __file__  # at the line of the caller, not inside the package


def test_later_clicks_judge_as_relevant_pairs(model, split):
    relevant = split.judged.pick(split.judged.relevant)
    ids = {"user_ids": relevant.user_ids, "item_ids": relevant.item_ids}
    later = ux.Clicks.from_pairs(relevant.users, relevant.items, **ids)
    assert ux.evaluate(model, later).means() == ux.evaluate(model, split.judged).means()


def test_metrics_replace_those_of_the_protocol(model, split):
    found = ux.evaluate(model, split.judged, metrics="ndcg@10, recall@7")
    assert list(found.means()) == ["ndcg@10", "recall@7"]
    paper = ux.PROTOCOLS["ubo-ijcai22"]
    (name,) = ux.evaluate(model, split.judged, paper, metrics=["map@2"]).values
    whole = ux.evaluate(model, split.judged, "ubo-ijcai22").means()
    assert ux.evaluate(model, split.judged, paper, metrics=["map@2"]).means()[name] == whole[name]


@pytest.fixture(scope="module")
def comparison(split):
    methods = ["popularity", quick("mf", epochs=3)]
    return ux.compare(split, methods, seeds=2, metrics="ndcg@10,recall@10", progress=Silent())


def test_compare_gives_a_row_for_each_method_and_metric_with_interval_and_p(comparison):
    frame = comparison.frame()
    assert frame.columns == "method metric mean sd low high below_best p_holm".split()
    assert frame.shape[0] == 4
    best = frame.filter(pl.col("metric") == "ndcg@10").sort("mean")[-1]
    assert best["below_best"].item() == 0
    assert best["p_holm"].item() == 1
    assert frame["p_holm"].min() < 1
    assert comparison.frame("pandas").shape == frame.shape
    assert f"best ndcg@10: {best['method'].item()}" in repr(comparison)
    heads, *rows, note = str(comparison).splitlines()
    assert heads.split() == ["method", "ndcg@10", "recall@10", "seconds"]
    assert [row.split()[0] for row in rows] == [result.label for result in comparison.results]
    assert "† below the best" in note
    assert "† below the best" in comparison._repr_html_()


def test_compare_of_files_and_frames_agrees_with_the_command(
    split, judged_frame, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    split.train.frame().write_csv("clicks.csv")
    judged_frame.cast({"relevance": pl.Int8}).write_csv("judged.csv")
    names = "popularity,mf:epochs=2:dim=4"
    line = f"compare --train clicks.csv --judged judged.csv --methods {names} --seeds 1 --json"
    said = CliRunner().invoke(app, [*line.split(), "--protocol", "judged"])
    wanted = json.loads(said.stdout)
    for train, judged in (("clicks.csv", "judged.csv"), (split.train.frame(), judged_frame)):
        found = ux.compare(train, names, judged, protocol="judged", seeds=1).document()
        for one, other in zip(found["results"], wanted["results"], strict=True):
            assert one["metrics"] == other["metrics"]


def test_without_judged_pairs_a_fifth_of_the_clicks_judges(split):
    clicks = split.train.union(split.held_out)
    found = ux.compare(clicks, "popularity", seeds=1)
    test = clicks.hold_out(fraction=0.2, seed=0)[1]
    assert found.users == len(np.unique(test.users))


@pytest.fixture(scope="module")
def study(split):
    pytest.importorskip("optuna")
    return ux.tune(split.train, "mf:epochs=3:dim=8", trials=3, fixed="batch_size")


def test_tune_finds_settings_and_leaves_the_given_ones_alone(study, split):
    frame = study.frame()
    assert frame.shape[0] == 3
    assert frame.columns[:4] == ["trial", "state", "quality", "seconds"]
    assert not {"dim", "epochs", "batch_size"} & set(frame.columns)
    assert study.best.dim == 8
    assert study.quality == frame.filter(pl.col("state") == "complete")["quality"].max()
    assert study.best.fit(split.train).method == study.best
    assert "Study(mf, 3 trials" in repr(study)
    assert "held-out quality" in study._repr_html_()


def test_report_writes_the_page_of_a_model_in_memory(model, split, judged_frame, tmp_path):
    pytest.importorskip("matplotlib")
    titles = pl.DataFrame({"item": range(60), "title": [f"<b>No. {i}" for i in range(60)]})
    page = ux.report(model, tmp_path / "page.html", judged=judged_frame, titles=titles)
    written = page.path.read_text(encoding="utf-8")
    assert "&lt;b&gt;No. " in written
    assert (
        page.document["judged"]["metrics"].keys() == ux.evaluate(model, split.judged).means().keys()
    )
    assert "page.html" in repr(page)
    assert "page.html" in page._repr_html_()


def test_the_functions_stay_public_after_a_room_of_the_same_name_is_loaded():
    import unexposed.report.page

    assert callable(ux.report)
    assert callable(unexposed.report)
    assert set(dir(ux)) >= {"compare", "tune", "report", "evaluate"}


def test_every_public_name_is_there():
    assert all(getattr(ux, name) is not None for name in ux.__all__)


def test_ctrl_c_keeps_the_methods_that_are_finished(split, monkeypatch):
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ux.METHODS["mf"], "fit", stopped)
    with pytest.raises(ux.Interrupted) as end:
        ux.compare(split, "popularity,mf", seeds=1, progress=Silent())
    assert [result.label for result in end.value.result.results] == ["popularity"]
    with pytest.raises(KeyboardInterrupt):
        ux.compare(split, "mf", seeds=1, progress=Silent())

"""A wrong argument in Python ends in one sentence, where there is a command in the command's."""

import numpy as np
import polars as pl
import pytest

import unexposed as ux
from small import quick
from unexposed.progress import Silent

FRAME = pl.DataFrame({"a": [1, 2], "b": [3, 4]})


@pytest.fixture(scope="module")
def made(small_world):
    split = small_world.split(seed=0)
    return split, quick("mf", epochs=2).fit(split.train, split.held_out, progress=Silent())


CASES = {
    "model: a frame": (
        lambda split, model: ux.evaluate(FRAME, split.judged),
        "give a Model or the folder of a saved one, got DataFrame",
    ),
    "judged: a frame without columns": (
        lambda split, model: ux.evaluate(model, FRAME),
        "the frame has no user column",
    ),
    "data set: its name, and judged pairs": (
        lambda split, model: ux.compare("coat", "popularity", split.judged),
        "a Dataset has judged pairs of its own: leave judged out",
    ),
    "judged: unknown users": (
        lambda split, model: ux.evaluate(model, ux.read_log({"user": "xy", "item": "zw"})),
        "none of the 2 judged pairs has a known user and item",
    ),
    "protocol: a list": (lambda split, model: ux.evaluate(model, split.judged, []), "no protocol"),
    "metric: a typo": (
        lambda split, model: ux.evaluate(model, split.judged, metrics="ndcq@10"),
        "no metric 'ndcq'; did you mean 'ndcg'?",
    ),
    "users: one": (lambda split, model: model.recommend(1), "give a list of user ids, got 1"),
    "users: text": (lambda split, model: model.recommend("a"), "got the text 'a'"),
    "users: none": (lambda split, model: model.recommend(None), "give a list of user ids"),
    "users: a frame": (lambda split, model: model.recommend(FRAME), "got DataFrame"),
    "users: lists": (lambda split, model: model.recommend([[1]]), "cannot be an id"),
    "users: unknown": (lambda split, model: model.recommend([1, "x"]), "never trained on user 'x'"),
    "users: skipped, but one": (
        lambda split, model: model.recommend(1, rules=ux.Rules(unknown="skip")),
        "give a list of user ids, got 1",
    ),
    "k: text": (lambda split, model: model.recommend([1], "3"), "k must be between 1 and 60 items"),
    "rules: a dict": (lambda split, model: model.recommend([1], rules={"k": 1}), "must be Rules"),
    "items: one": (lambda split, model: model.recommend_for(1), "give a list of item ids, got 1"),
    "pairs: uneven": (lambda split, model: model.score([1], [2, 3]), "got 1 users for 2 items"),
    "update: a frame": (lambda split, model: model.update(FRAME), "mf learns from Clicks"),
    "load: a number": (lambda split, model: ux.load(1), "give the path of the file of a model"),
    "fit: judgements": (
        lambda split, model: ux.make("mf").fit(split.judged),
        "mf learns from Clicks, got Judgements: read_log makes them from a file or a frame",
    ),
    "fit: seed": (lambda split, model: ux.make("mf").fit(split.train, seed="a"), "seed must be"),
    "make: a number": (lambda split, model: ux.make(3), "no method 3; there is 'random'"),
    "compare: a typo": (
        lambda split, model: ux.compare(split, "mf,ubq"),
        "no method 'ubq'; did you mean 'ubo'?",
    ),
    "compare: a model": (
        lambda split, model: ux.compare(split, [model]),
        "a method is a name or comes from ux.make, got Model",
    ),
    "compare: twice": (lambda split, model: ux.compare(split, ["mf", "mf"]), "given twice"),
    "compare: judged twice": (
        lambda split, model: ux.compare(split, "mf", split.judged),
        "a Split has judged pairs of its own",
    ),
    "compare: judged missing": (
        lambda split, model: ux.compare(split.train, "mf", protocol="judged"),
        "protocol 'judged' cannot judge by clicks alone",
    ),
    "tune: two": (lambda split, model: ux.tune(split.train, "mf,ubo"), "tune takes one method"),
    "tune: a typo": (
        lambda split, model: ux.tune(split.train, "mf", fixed=["epoch"]),
        "mf has no setting 'epoch'; did you mean 'epochs'?",
    ),
    "tune: criterion": (
        lambda split, model: ux.tune(split.train, "mf", criterion="unifrom"),
        "did you mean 'uniform'?",
    ),
    "report: out": (lambda split, model: ux.report(model, 3), "give the path of the page"),
    "report: a folder": (lambda split, model: ux.report("src", "x.html"), "no model src"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_argument_is_refused_in_one_sentence(made, case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, words = CASES[case]
    with pytest.raises(ux.InputError) as refusal:
        call(*made)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


def test_arrays_series_and_ranges_are_lists_of_ids(made):
    model = made[1]
    wanted = model.recommend([1, 2], 3)
    for users in (np.array([1, 2]), pl.Series([1, 2]), range(1, 3), (1, 2)):
        assert model.recommend(users, 3).equals(wanted)

"""Random traffic beside a comparison and a study: who gets it, and what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest

from unexposed.data.judged import read_traffic
from unexposed.data.labelled import Impressions, Judgements, Traffic
from unexposed.data.split import Split
from unexposed.data.worlds.simulate import world
from unexposed.errors import InputError
from unexposed.evaluation.compare import compare, refuse_shared, split_clicks
from unexposed.evaluation.protocols import PROTOCOLS
from unexposed.experiments.data import open_data
from unexposed.methods import make
from unexposed.model.recommender import Recommender
from unexposed.progress import Silent
from unexposed.training.side import Side
from unexposed.tuning.search import tune

BY = PROTOCOLS["ubo-ijcai22"]
WORLD = world(60, 30, seed=0)
SMALL = {"epochs": 3, "dim": 4, "patience": 0}


def random_part(*, judged: bool) -> tuple[Judgements, Traffic]:
    """Judged pairs of a split, and traffic of other pairs, or of the same."""
    split = WORLD.split(seed=0, judged_per_user=10)
    j = split.judged
    if judged:
        return j, Traffic(j.users, j.items, j.relevant, j.user_ids, j.item_ids)
    (_, liked) = (np.concatenate(part) for part in zip(*WORLD.draws(0), strict=True))
    lots = np.random.default_rng(0).random(liked.shape) < 0.3
    lots[j.users, j.items] = False
    users, items = (side.astype(np.int32) for side in np.nonzero(lots))
    return j, Traffic(users, items, liked[users, items], j.user_ids, j.item_ids)


def test_a_comparison_gives_traffic_to_methods_that_use_it_and_names_the_others(monkeypatch):
    judged, traffic = random_part(judged=False)
    given, said = {}, []
    fit = Recommender.fit

    def noted(method, *args, **rest):
        given[method.name] = rest["side"]
        return fit(method, *args, **rest)

    monkeypatch.setattr(Recommender, "fit", noted)
    methods = {
        n: make(n, **(SMALL if n != "popularity" else {})) for n in ("popularity", "mf", "wmf")
    }
    splits = split_clicks(WORLD.clicks(0), judged, BY)
    side = Side(traffic=traffic)
    compare(splits, methods, by=BY, seeds=1, progress=Silent(), side=side, say=said.append)
    assert given["mf"].traffic is traffic
    assert given["popularity"].traffic is given["wmf"].traffic is None
    assert said == ["popularity, wmf cannot use traffic, and learn from clicks alone"]


def test_traffic_that_shares_pairs_with_the_judgements_is_refused_with_their_number():
    judged, traffic = random_part(judged=True)
    some = traffic.pick(np.arange(len(traffic)) < 7)
    with pytest.raises(InputError, match="share 7 pairs.*leave these out of one"):
        refuse_shared(some, judged)
    splits = split_clicks(WORLD.clicks(0), judged, BY)
    with pytest.raises(InputError, match=f"share {len(judged):,} pairs"):
        compare(
            splits,
            {"mf": make("mf", **SMALL)},
            by=BY,
            seeds=1,
            progress=Silent(),
            side=Side(traffic=traffic),
        )
    refuse_shared(random_part(judged=False)[1], judged)
    refuse_shared(None, judged)


def test_the_impressions_of_a_log_reach_the_methods_of_a_comparison():
    clicks = WORLD.clicks(0)
    shown = Impressions.from_pairs(
        np.repeat(np.arange(60), 4),
        np.tile([0, 9, 19, 29], 60),
        user_ids=clicks.user_ids,
        item_ids=clicks.item_ids,
    )
    split = split_clicks(replace(clicks, shown=shown), random_part(judged=False)[0], BY)(0)
    assert isinstance(split, Split)
    assert split.train.shown is shown
    assert (
        make("umf", **SMALL)
        .fit(split.train, split.held_out, progress=Silent())
        .facts["impressions"]
    )


# a study


def studied(name: str, folder, *, by="traffic", fixed=(), **settings):
    pytest.importorskip("optuna")
    made = {k: v for k, v in (SMALL | settings).items() if k in make(name).__dataclass_fields__}
    return tune(
        WORLD.clicks(0),
        make(name, **made),
        trials=2,
        folder=folder,
        name="study",
        fixed=fixed,
        side=Side(traffic=random_part(judged=False)[1]),
        by=by,
    )


def test_a_study_by_traffic_chooses_epochs_by_it_and_does_not_train_on_it(tmp_path):
    document = studied("mf", tmp_path)
    assert document["held"]["epoch_by"] == "traffic"
    assert document["held"]["traffic_use"] == "none"
    assert document["criterion"] == "traffic"
    again = studied("mf", tmp_path)  # finished: nothing is trained
    assert again["best"] == document["best"]


def test_a_study_by_traffic_trains_on_a_share_of_its_own_where_it_is_told_to(tmp_path):
    document = studied("mf", tmp_path, fixed=("traffic_use",))
    assert document["held"]["traffic_use"] == "training"


@pytest.mark.parametrize("name", ["ease", "wmf"])
def test_a_study_by_traffic_judges_methods_that_cannot_learn_from_it(name, tmp_path):
    document = studied(name, tmp_path)
    assert 0 < document["best"]["value"] < 3
    others = studied(name, tmp_path / "held_out", by="uniform")
    assert others["best"]["value"] != document["best"]["value"]


def test_a_study_by_traffic_needs_some(tmp_path):
    with pytest.raises(InputError, match="tuning by traffic needs random traffic"):
        tune(
            WORLD.clicks(0),
            make("mf", **SMALL),
            trials=1,
            folder=tmp_path,
            name="s",
            by="traffic",
        )


def test_a_finished_study_older_than_a_setting_still_counts(tmp_path):
    document = studied("mf", tmp_path, by="uniform")
    for new in ("epoch_by", "traffic_use", "counts"):
        del document["held"][new]
    (tmp_path / "study.json").write_text(json.dumps(document))
    (tmp_path / "study.journal").unlink()
    said = []
    tune(
        WORLD.clicks(0),
        make("mf", **SMALL),
        trials=2,
        folder=tmp_path,
        name="study",
        side=Side(traffic=random_part(judged=False)[1]),
        say=said.append,
    )
    assert "is finished" in said[0]


# experiments


def test_the_traffic_of_a_world_holds_no_judged_pair_and_grows_with_its_share():
    data = open_data({"simulate": {"users": 40, "items": 30, "seed": 3}}, BY)
    small, large = (data.side(None, traffic=share).traffic for share in (0.1, 0.5))
    refuse_shared(large, data.judged)
    assert np.isin(small.keys, large.keys).all()
    assert 0 < len(small) < len(large)
    assert large.relevant.any()
    assert not large.relevant.all()


# reading


def test_traffic_is_read_as_judged_pairs_are():
    clicks, frame = WORLD.clicks(0), {"user": [0, 0, 5, 99], "item": [1, 2, 3, 4]}
    said = []
    traffic = read_traffic(frame | {"rating": [5, 1, 4, 5]}, clicks, say=said.append)
    assert traffic.users.tolist() == [0, 0, 5]
    assert traffic.relevant.tolist() == [True, False, True]
    assert "left out 1 of 4" in said[-1]
    again = read_traffic(frame | {"relevance": [1, 0, 1, 1]}, clicks)
    assert again.relevant.tolist() == traffic.relevant.tolist()

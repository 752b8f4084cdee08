"""Random traffic beside a comparison and a study: who gets it, and what is refused."""

import numpy as np
import pytest

from unexposed.data.labelled import Judgements, Traffic
from unexposed.data.worlds.simulate import world
from unexposed.errors import InputError
from unexposed.evaluation.compare import compare, refuse_shared, split_clicks
from unexposed.evaluation.protocols import PROTOCOLS
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
    again = studied("mf", tmp_path / "fixed", fixed=("traffic_use",))
    assert again["held"]["traffic_use"] == "training"  # a share of its own
    with pytest.raises(InputError, match="tuning by traffic needs random traffic"):
        tune(WORLD.clicks(0), make("mf"), trials=1, folder=tmp_path, name="s", by="traffic")


@pytest.mark.parametrize("name", ["ease", "wmf"])
def test_a_study_by_traffic_judges_methods_that_cannot_learn_from_it(name, tmp_path):
    document = studied(name, tmp_path)
    assert 0 < document["best"]["value"] < 3
    others = studied(name, tmp_path / "held_out", by="uniform")
    assert others["best"]["value"] != document["best"]["value"]

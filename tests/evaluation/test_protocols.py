import numpy as np
import pytest

from unexposed.data import datasets
from unexposed.data.clicks import Clicks, Judgements
from unexposed.data.ids import Ids
from unexposed.errors import InputError
from unexposed.evaluation import protocols as evaluation
from unexposed.evaluation.protocols import PROTOCOLS
from unexposed.methods import make
from unexposed.model.model import Model
from unexposed.progress import Silent
from unexposed.ranking import blocks, top
from unexposed.ranking.blocks import tie_break
from unexposed.ranking.top import best_first

N_USERS, N_ITEMS = 6, 8
USERS, ITEMS = Ids.range(N_USERS), Ids.range(N_ITEMS)


def log(*pairs: tuple[int, int]) -> Clicks:
    users, items = np.array(pairs).reshape(-1, 2).T
    return Clicks.from_pairs(users, items, user_ids=USERS, item_ids=ITEMS)


def judgements(*triples: tuple[int, int, bool]) -> Judgements:
    users, items, relevant = np.array(triples).T
    return Judgements.from_pairs(users, items, relevant == 1, user_ids=USERS, item_ids=ITEMS)


def brute_rank(score: np.ndarray, user: int, item: int, candidates: list[int]) -> int:
    keys = [
        (-score[user, c], int(tie_break(np.array([user]), np.array([c]))[0]), c) for c in candidates
    ]
    return 1 + [c for _, _, c in sorted(keys)].index(item)


@pytest.mark.parametrize("levels", [1, 3, 1000])  # all tied, many ties, hardly any
def test_judged_and_catalogue_ranks_match_sorting_each_user_by_hand(levels):
    rng = np.random.default_rng(levels)
    score = rng.integers(levels, size=(N_USERS, N_ITEMS)).astype(np.float32)
    clicked = rng.random((N_USERS, N_ITEMS)) < 0.3
    clicks = log(*np.argwhere(clicked))
    is_judged = rng.random((N_USERS, N_ITEMS)) < 0.7
    relevant = rng.random((N_USERS, N_ITEMS)) < 0.5
    judged = judgements(*((u, i, relevant[u, i]) for u, i in np.argwhere(is_judged)))

    ranking = evaluation.rank_judged(lambda users: score[users], judged, clicks)
    expected = {
        (u, i): brute_rank(score, u, i, np.flatnonzero(is_judged[u]).tolist())
        for u, i in np.argwhere(is_judged & relevant)
    }
    users = np.unique(judged.users)[ranking.users]
    got = dict(zip(zip(users, ranking.items, strict=True), ranking.ranks, strict=True))
    assert got == expected

    wanted = is_judged & relevant & ~clicked
    pairs = judgements(*((u, i, True) for u, i in np.argwhere(wanted)))
    ranking = evaluation.rank_catalogue(lambda users: score[users], pairs, clicks)
    expected = {
        (u, i): brute_rank(score, u, i, np.flatnonzero(~clicked[u]).tolist())
        for u, i in np.argwhere(wanted)
    }
    users = np.unique(pairs.users)[ranking.users]
    got = dict(zip(zip(users, ranking.items, strict=True), ranking.ranks, strict=True))
    assert got == expected
    assert (ranking.n_candidates == (~clicked).sum(axis=1)[np.unique(pairs.users)]).all()

    top = best_first(score, np.arange(N_USERS, dtype=np.int32), 3)
    for u in range(N_USERS):
        ranks = [brute_rank(score, u, i, list(range(N_ITEMS))) for i in top[u]]
        assert ranks == [1, 2, 3]


def ranked(score: np.ndarray, wanted: np.ndarray, clicked: np.ndarray) -> dict:
    """The rank of each wanted pair of the matrices, by `rank_catalogue`."""
    n_users, n_items = score.shape
    ids = {"user_ids": Ids.range(n_users), "item_ids": Ids.range(n_items)}
    users, items = np.nonzero(wanted)
    pairs = Judgements.from_pairs(users, items, np.ones(len(users)), **ids)
    clicks = Clicks.from_pairs(*np.nonzero(clicked), **ids)
    ranking = evaluation.rank_catalogue(lambda users: score[users], pairs, clicks)
    users = np.unique(pairs.users)[ranking.users]
    return dict(zip(zip(users, ranking.items, strict=True), ranking.ranks, strict=True))


@pytest.mark.parametrize("n_items", [1, 2, 3, 50])
@pytest.mark.parametrize("block_entries", [1, 120, 10**6])  # a user at a time, a few, all
def test_catalogue_ranks_leave_out_clicked_items_tied_or_better(
    n_items, block_entries, monkeypatch
):
    monkeypatch.setattr(blocks, "BLOCK_ENTRIES", block_entries)
    rng = np.random.default_rng(n_items)
    shape = (30, n_items)
    score = rng.choice(np.array([-np.inf, -1, 0, 0.5, np.inf], dtype=np.float32), size=shape)
    clicked = rng.random(shape) < rng.random((30, 1))  # users with few clicks, and with many
    wanted = ~clicked & (rng.random(shape) < 0.5)
    assert ranked(score, wanted, clicked) == {
        (u, i): brute_rank(score, u, i, np.flatnonzero(~clicked[u]).tolist())
        for u, i in np.argwhere(wanted)
    }


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_may_be_one_row_for_all_users_and_of_any_precision(dtype):
    row = np.random.default_rng(0).permutation(N_ITEMS).astype(dtype) * 1e-12 + 1
    score = np.broadcast_to(row, (N_USERS, N_ITEMS))
    wanted = np.ones((N_USERS, N_ITEMS), dtype=bool)
    assert ranked(score, wanted, ~wanted) == {
        (u, i): brute_rank(score, u, i, list(range(N_ITEMS))) for u, i in np.argwhere(wanted)
    }


def test_the_compiled_tie_break_is_the_one_of_recommendations():
    users, items = np.random.default_rng(0).integers(2**31 - 1, size=(2, 50), dtype=np.int32)
    compiled = [top.tie_break(u, i) for u, i in zip(users, items, strict=True)]
    assert compiled == tie_break(users, items).tolist()


def test_nothing_wanted_gives_an_empty_ranking():
    nothing = np.zeros((N_USERS, N_ITEMS), dtype=bool)
    score = np.zeros((N_USERS, N_ITEMS), dtype=np.float32)
    assert ranked(score, nothing, nothing) == {}


def test_a_wanted_pair_that_was_clicked_is_refused():
    pair = np.arange(N_USERS * N_ITEMS).reshape(N_USERS, N_ITEMS) == 9
    score = np.zeros((N_USERS, N_ITEMS), dtype=np.float32)
    with pytest.raises(InputError, match="was clicked"):
        ranked(score, pair, pair)


def test_ties_favour_neither_popular_items_nor_low_indices():
    n_users, n_items = 4000, 10
    block = np.zeros((n_users, n_items), dtype=np.float32)
    first = best_first(block, np.arange(n_users, dtype=np.int32), 1)[:, 0]
    share = np.bincount(first, minlength=n_items) / n_users
    np.testing.assert_allclose(share, 0.1, atol=0.025)  # 5 sd


def test_the_paper_evaluates_users_with_a_click_a_relevant_and_an_irrelevant_item():
    clicks = log((0, 0), (1, 1), (2, 2), (3, 3))
    judged = judgements(
        (0, 1, True), (0, 2, False),  # evaluated
        (1, 1, True), (1, 2, True),  # nothing irrelevant
        (2, 1, False), (2, 2, False),  # nothing relevant
        (3, 1, True), (3, 7, False),  # its irrelevant item was never clicked by anyone: dropped
        (4, 1, True), (4, 2, False),  # a user without clicks
    )  # fmt: skip
    kept = evaluation.eligible(judged, clicks, PROTOCOLS["ubo-ijcai22"])
    assert np.unique(kept.users).tolist() == [0]


def test_a_judged_set_that_evaluates_nobody_is_refused():
    clicks = log((0, 0), (1, 1))
    with pytest.raises(InputError, match="evaluates nobody"):
        evaluation.eligible(judgements((0, 1, True)), clicks, PROTOCOLS["ubo-ijcai22"])
    with pytest.raises(InputError, match="evaluates nobody"):
        evaluation.eligible(judgements((0, 0, True)), clicks, PROTOCOLS["catalogue"])


def test_an_unknown_protocol_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'ubo-ijcai22'"):
        evaluation.protocol("ubo-ijcai2022")


@pytest.fixture(scope="module")
def popular(small_world) -> tuple[Model, Judgements]:
    split = small_world.split(seed=0)
    model = make("popularity").fit(split.train, split.held_out, progress=Silent())
    return model, split.judged


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocol_gives_a_finite_value_for_each_user_and_metric(name, popular):
    model, judged = popular
    by = PROTOCOLS[name]
    found = evaluation.evaluate(model, judged, by)
    assert list(found.values) == list(by.metrics)
    for values in found.values.values():
        assert values.shape == found.users.shape
        assert np.isfinite(values).all()
    document = evaluation.describe(model, judged, by)
    assert document["users"] == len(found.users)
    assert document["metrics"].keys() == by.metrics.keys()
    assert set(document["by_popularity"]) == {"head", "middle", "tail"}


def test_the_popular_list_does_best_on_popular_items_and_covers_little(popular):
    model, judged = popular
    document = evaluation.describe(model, judged, PROTOCOLS["ubo-ijcai22"])
    by = {k: v["metrics"]["dcg@3"] for k, v in document["by_popularity"].items()}
    assert by["head"] > by["middle"] > by["tail"]
    assert document["recommended"]["coverage"] < 0.8
    assert document["recommended"]["mean_popularity"] > model.clicks.item_counts.mean()


def test_scores_that_are_not_numbers_are_refused():
    clicks, judged = log((0, 0), (1, 1)), judgements((0, 1, True), (0, 0, False))
    bad = np.full((N_USERS, N_ITEMS), np.nan, dtype=np.float32)
    with pytest.raises(InputError, match="not numbers"):
        evaluation.rank_judged(lambda users: bad[users], judged, clicks)
    for unwanted in (0, 7):  # clicked, or not
        one_bad = np.zeros((N_USERS, N_ITEMS), dtype=np.float32)
        one_bad[0, unwanted] = np.nan
        with pytest.raises(InputError, match="not numbers"):
            evaluation.rank_catalogue(
                lambda users, s=one_bad: s[users], judgements((0, 1, True)), clicks
            )


def test_the_correlation_of_exposure_with_itself_is_one(small_world):
    clicks = small_world.clicks(0)
    model = make("umf", epochs=1, dim=2).fit(clicks, progress=Silent())

    def own(users):
        return model.method.exposure(model.parameters, users)

    assert evaluation.exposure_correlation(model, own) == pytest.approx(1)
    assert evaluation.exposure_correlation(model, lambda u: 1 - own(u)) == pytest.approx(-1)
    assert abs(evaluation.exposure_correlation(model, small_world.exposure)) < 1


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "users", "train", "held_out"),
    [("coat", 237, 1_715, 190), ("yahoo_r3", 2_374, 112_570, 12_507)],
)
def test_the_papers_protocol_evaluates_its_users_and_clicks(data_dir, name, users, train, held_out):
    by = PROTOCOLS["ubo-ijcai22"]
    data = datasets.load(name, data_dir=data_dir, download=False)
    for seed in (0, 1):
        split = evaluation.split_ratings(data.logged, data.random, by, seed=seed)
        assert (len(split.train), len(split.held_out)) == (train, held_out)
        model = make("popularity").fit(split.train, split.held_out, progress=Silent())
        found = evaluation.evaluate(model, split.judged, by)
        assert len(found.users) == users
        means = found.means()
        assert list(means) == ["dcg@1", "dcg@2", "dcg@3", "map@1", "map@2", "map@3"]
        assert means["dcg@1"] == means["map@1"]


@pytest.mark.data
def test_a_rating_set_without_a_random_part_needs_a_catalogue_protocol(data_dir):
    data = datasets.load("ml_100k", data_dir=data_dir, download=False)
    with pytest.raises(InputError, match="use --protocol catalogue"):
        evaluation.split_ratings(data.logged, data.random, PROTOCOLS["ubo-ijcai22"], seed=0)
    split = evaluation.split_ratings(data.logged, data.random, PROTOCOLS["catalogue"], seed=0)
    assert not split.train.contain(split.judged.users, split.judged.items).any()

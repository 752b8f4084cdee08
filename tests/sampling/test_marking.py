"""Marked samples: the loss of an epoch is the one that the data call for, in expectation."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.data.labelled import Traffic
from unexposed.maths.losses import LOSSES
from unexposed.sampling.marking import Marking
from unexposed.sampling.marks import PairTable
from unexposed.sampling.samples import Drawing, Sampler, Samples


@dataclass
class MarkedSampler:
    """Draws samples and marks them."""

    sampler: Sampler
    marking: Marking

    def draw(self, rng: np.random.Generator) -> Samples:
        return self.marking.mark(self.sampler.draw(rng), rng)


IDS = {"user_ids": Ids.range(4), "item_ids": Ids.range(6)}
LOG = Clicks.from_pairs(  # one click, four, five, none
    np.array([0] + [1] * 4 + [2] * 5), np.array([3, 0, 1, 2, 3, *range(5)]), **IDS
)
RNG = np.random.default_rng(0)
LOGIT = RNG.normal(size=(4, 6))
MODELLED = RNG.uniform(0.1, 0.5, (4, 6))
KNOWN = {(0, 0): 0.9, (0, 5): 1.0, (1, 4): 0.8, (2, 5): 0.3}  # shown and not clicked
JUDGED = {(0, 1): True, (0, 2): False, (1, 5): True, (3, 0): True, (3, 4): False}


def columns(pairs):
    ordered = sorted(pairs)
    users, items = (np.array([pair[side] for pair in ordered], dtype=np.int32) for side in (0, 1))
    return users, items, np.array([pairs[pair] for pair in ordered])


def known() -> PairTable:
    return PairTable.of(*columns(KNOWN), n_users=4)


def traffic() -> Traffic:
    users, items, relevant = columns(JUDGED)
    return Traffic(users, items, relevant, **IDS)


def loss_of_epoch(loss: str, samples) -> float:
    """Σ weight·L as the engines compute it: m is the mark, or the model's where there is none."""
    pairs = samples.pairs()
    at = pairs.users, pairs.items
    m = np.where(np.isnan(pairs.exposure), MODELLED[at], pairs.exposure)
    given = (torch.tensor(column).double() for column in (LOGIT[at], pairs.click, m))
    return float((torch.tensor(pairs.weight) * LOSSES[loss].value(*given)).sum())


def loss_of_all_pairs(loss: str, *, weight: float) -> float:
    """The log's loss over the pairs of users with clicks outside of the traffic, and the traffic's.

    A pair that was shown has its known m, one never shown the model's, one of the traffic m = 1.
    """
    total = 0.0
    for user in range(4):
        for item in range(6):
            pair = (user, item)
            m, label, counts = MODELLED[pair], LOG.matrix().toarray()[pair] > 0, 1.0
            if pair in JUDGED:
                m, label, counts = 1.0, JUDGED[pair], weight
            elif user == 3:
                counts = 0.0  # without clicks it is never visited
            else:
                m = KNOWN.get(pair, m)
            given = (torch.tensor(float(x)).double() for x in (LOGIT[pair], label, m))
            total += counts * float(LOSSES[loss].value(*given))
    return total


@pytest.mark.parametrize("loss", ["inverse_propensity", "low_variance"])
@pytest.mark.parametrize("exponent", [0.0, 0.5])
def test_the_expected_loss_is_the_sum_over_all_pairs_each_with_what_is_known_of_it(loss, exponent):
    marking = Marking(known(), traffic=traffic(), traffic_weight=2.5)
    drawing = Drawing(2, "unbiased", exponent=exponent)
    sampler, rng = MarkedSampler(drawing.sampler(LOG), marking), np.random.default_rng(1)
    found = np.array([loss_of_epoch(loss, sampler.draw(rng)) for _ in range(1500)])
    exact, error = loss_of_all_pairs(loss, weight=2.5), found.std() / np.sqrt(len(found))
    assert error < 0.02 * exact
    assert abs(found.mean() - exact) < 4 * error
    # each part moves the expectation by far more than that
    for other in (Marking(traffic=traffic(), traffic_weight=2.5), Marking(known())):
        sampler = MarkedSampler(drawing.sampler(LOG), other)
        without = np.mean([loss_of_epoch(loss, sampler.draw(rng)) for _ in range(500)])
        ignored = loss == "inverse_propensity" and other.known is None  # c = 0: m plays no part
        assert (abs(without - exact) > 20 * error) != ignored


def test_each_pair_of_the_traffic_comes_once_an_epoch_in_another_place_each_time():
    sampler = MarkedSampler(Drawing(3).sampler(LOG), Marking(traffic=traffic(), traffic_weight=2.0))
    rng, places = np.random.default_rng(0), set()
    for _ in range(20):
        samples = sampler.draw(rng)
        pairs = samples.pairs()
        judged = pairs.exposure == 1
        said = zip(pairs.users[judged], pairs.items[judged], pairs.click[judged] > 0, strict=True)
        assert sorted((int(u), int(i), bool(c)) for u, i, c in said) == sorted(
            (*pair, relevant) for pair, relevant in JUDGED.items()
        )
        assert (pairs.weight[judged] == 2).all()
        assert np.isnan(pairs.exposure[~judged]).all()
        assert len(samples) == len(LOG) + len(JUDGED)
        places.add(tuple(np.flatnonzero(judged)))
    assert len(places) == 20


def test_a_pairwise_loss_compares_relevant_traffic_with_the_irrelevant_of_its_user():
    sampler = MarkedSampler(
        Drawing(2).sampler(LOG), Marking(traffic=traffic(), traffic_weight=3.0, negatives=2)
    )
    samples = sampler.draw(np.random.default_rng(0))
    pairs = samples.pairs()
    first = samples.start[:-1]
    assert (pairs.click[first] == 1).all()
    assert pairs.click.sum() == len(samples)
    judged = np.flatnonzero(pairs.exposure[first] == 1)
    groups = {
        (int(samples.users[c]), *samples.items[samples.start[c] : samples.start[c + 1]].tolist())
        for c in judged
    }
    # user 1 was judged to like all that it was shown: there is nothing to compare
    assert groups == {(0, 1, 2, 2), (3, 0, 4, 4)}
    assert len(judged) == 2
    assert (pairs.weight[pairs.exposure == 1] == 3).all()


@pytest.mark.parametrize("negatives", [0, 2])
def test_a_click_weighs_what_its_table_says_and_draws_weigh_with_it_where_they_are_compared(
    negatives,
):
    weights = np.arange(1, 1 + len(LOG), dtype=np.float32)
    table = PairTable.of(LOG.users, LOG.items, weights, n_users=4)
    marking = Marking(click_weight=table, negatives=negatives)
    samples = MarkedSampler(Drawing(2).sampler(LOG), marking).draw(np.random.default_rng(0))
    pairs = samples.pairs()
    clicked = samples.items[samples.start[:-1]]
    own = table.look_up(samples.users, clicked)
    np.testing.assert_array_equal(pairs.weight[samples.start[:-1]], own)
    expected = np.repeat(own if negatives else np.ones(len(own)), np.diff(samples.start) - 1)
    np.testing.assert_array_equal(pairs.weight[pairs.click == 0], expected)


# negatives from what was shown


@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_shown_items_are_drawn_by_their_chance_and_a_user_without_any_draws_unclicked_ones(
    exponent,
):
    shown = np.array([0, 0, 2]), np.array([0, 5, 5], dtype=np.int32)
    drawing = Drawing(3000, source="shown", exponent=exponent)
    sampler = drawing.sampler(LOG, shown)
    assert not sampler.rejects_few()  # a GPU cannot draw from it
    pairs = sampler.draw(np.random.default_rng(0)).pairs()
    drawn = pairs.click == 0
    count = np.bincount(pairs.items[drawn & (pairs.users == 0)], minlength=6)
    share = np.array([2, 1]) if exponent else np.ones(2)  # item 0 has two clicks, 5 none
    np.testing.assert_allclose(count[[0, 5]] / 3000, share / share.sum(), atol=0.05)
    assert count.sum() == 3000
    assert set(pairs.items[drawn & (pairs.users == 2)]) == {5}
    assert set(pairs.items[drawn & (pairs.users == 1)]) == {4, 5}
    np.testing.assert_array_equal(pairs.items[~drawn][pairs.users[~drawn] == 0], [3])

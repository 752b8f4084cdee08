"""What a world shows follows its stated chances, and leaves its clicks as they are."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.data.labelled import Impressions
from unexposed.data.worlds import simulate
from unexposed.data.worlds.simulate import World, world
from unexposed.data.worlds.write import write_world
from unexposed.errors import InputError


@pytest.fixture(scope="module")
def shop() -> World:
    return world(120, 50, exposure_rate=0.3, relevance_rate=0.4, attention=0.4, seed=1)


def impressions(log: Clicks) -> Impressions:
    assert log.shown is not None
    return log.shown


def of_pairs(table: NDArray, rows: Impressions) -> NDArray[np.float64]:
    return table.astype(np.float64)[rows.users, rows.items]


def counted(world: World, seed: int) -> NDArray[np.int64]:
    """How often each pair was shown: users × items."""
    shown = impressions(world.log(seed))
    table = np.zeros((world.n_users, world.n_items), dtype=np.int64)
    table[shown.users, shown.items] = shown.shown
    return table


@pytest.mark.parametrize("attention", [0.1, 0.5, 1.0])
def test_clicks_are_the_same_with_impressions_and_each_was_shown(shop, attention):
    log, clicks = replace(shop, attention=attention).log(3), shop.clicks(3)
    np.testing.assert_array_equal(log.keys, clicks.keys)
    np.testing.assert_array_equal(log.counts, clicks.counts)
    shown = impressions(log)
    assert shown.contain(log.users, log.items).all()
    np.testing.assert_array_equal(shown.keys[shown.clicked > 0], clicks.keys)
    assert shown.clicked.max() == 1  # the user clicks once, however often it is shown


def test_showings_come_as_often_as_a_poisson_process_of_the_stated_rate(shop):
    everyone, n_draws = np.arange(shop.n_users), 300
    exposure = shop.exposure(everyone).astype(np.float64)
    rate = -np.log1p(-exposure) / shop.attention
    counts = np.stack([counted(shop, seed) for seed in range(n_draws)])
    z = (counts.mean(axis=0) - rate) / np.sqrt(rate / n_draws)
    assert abs(z.mean()) < 5 / np.sqrt(z.size)
    assert np.mean(z**2) == pytest.approx(1, abs=0.1)
    # of a Poisson variable the variance is the mean
    assert np.mean(counts.var(axis=0, ddof=1) / rate) == pytest.approx(1, abs=0.02)


def test_the_propensity_is_the_chance_that_the_pair_is_shown_at_all(shop):
    exposure = shop.exposure(np.arange(shop.n_users)).astype(np.float64)
    chance = 1 - (1 - exposure) ** (1 / shop.attention)
    n_draws = 200
    frequency = sum(counted(shop, seed) > 0 for seed in range(n_draws)) / n_draws
    z = (frequency - chance) / np.sqrt(chance * (1 - chance) / n_draws)
    assert abs(z.mean()) < 5 / np.sqrt(z.size)
    assert np.mean(z**2) == pytest.approx(1, abs=0.1)
    shown = impressions(shop.log(0))
    np.testing.assert_allclose(shown.propensity, of_pairs(chance, shown), rtol=1e-4)


def test_a_pair_shown_n_times_is_exposed_with_chance_one_minus_inattention_to_the_n(shop):
    exposed_of, seen_of = {}, {}
    for seed in range(60):
        counts = counted(shop, seed)
        exposed = np.concatenate([shown for shown, _ in shop.draws(seed)])
        assert not exposed[counts == 0].any()
        for n in (1, 2, 3):
            exposed_of[n] = exposed_of.get(n, 0) + exposed[counts == n].sum()
            seen_of[n] = seen_of.get(n, 0) + (counts == n).sum()
    for n in (1, 2, 3):
        chance = 1 - (1 - shop.attention) ** n
        bound = 4 * np.sqrt(chance * (1 - chance) / seen_of[n])
        assert exposed_of[n] / seen_of[n] == pytest.approx(chance, abs=bound)


def test_with_full_attention_what_was_shown_is_what_was_exposed(shop):
    attentive = replace(shop, attention=1.0)
    exposed = np.concatenate([shown for shown, _ in shop.draws(2)])
    np.testing.assert_array_equal(counted(attentive, 2) > 0, exposed)
    shown = impressions(attentive.log(2))
    truth = shop.exposure(np.arange(shop.n_users))
    np.testing.assert_allclose(shown.propensity, of_pairs(truth, shown), rtol=1e-4)


def test_rows_are_in_the_order_of_time_and_the_click_comes_at_a_fair_place(shop):
    rows = replace(shop, attention=1.0).showings(1)
    assert (np.diff(rows.times) >= 0).all()
    assert rows.times.max() - rows.times.min() <= 30 * 24 * 60 * 60
    # all showings are noticed, so the click is the first showing of its pair
    keys = rows.users.astype(np.int64) * shop.n_items + rows.items
    first = np.unique(keys, return_index=True)[1]
    assert set(np.flatnonzero(rows.clicked)) <= set(first.tolist())
    # with little attention the click of a pair shown twice is the later one nearly as often
    blind = replace(shop, attention=0.05)
    later = []
    for seed in range(20):
        rows = blind.showings(seed)
        keys = rows.users.astype(np.int64) * shop.n_items + rows.items
        _, place, times = np.unique(keys, return_inverse=True, return_counts=True)
        again = np.ones(len(keys), dtype=bool)
        again[np.unique(keys, return_index=True)[1]] = False
        later.append(again[rows.clicked & (times[place] == 2)])
    share = np.concatenate(later)
    chance = 0.95 / 1.95  # not noticed first, given noticed once or twice
    assert share.mean() == pytest.approx(chance, abs=4 * np.sqrt(0.25 / len(share)))


def test_showings_depend_on_the_seed_alone_and_not_on_the_blocks(shop, monkeypatch):
    rows, other = shop.showings(3), shop.showings(4)
    assert len(rows.users) != len(other.users)
    monkeypatch.setattr(simulate, "_PAIRS_AT_ONCE", 7 * shop.n_items)
    again = shop.showings(3)
    for name in ("users", "items", "clicked", "times"):
        np.testing.assert_array_equal(getattr(rows, name), getattr(again, name))
    # the scores of a block differ in the last bit by its size
    np.testing.assert_allclose(rows.propensity, again.propensity, rtol=1e-6)


# Random traffic


def test_traffic_is_drawn_by_lot_and_tells_what_made_the_clicks(shop):
    n_pairs, everyone = shop.n_users * shop.n_items, np.arange(shop.n_users)
    exposure, relevance = (table.astype(np.float64) for table in shop.truth(everyone))
    sizes, seen, z = [], [], []
    for seed in range(20):
        drawn = shop.traffic(0.1, seed=seed)
        sizes.append(len(drawn))
        seen.append(exposure[drawn.users, drawn.items].mean())
        chance = relevance[drawn.users, drawn.items]
        z.append(((drawn.relevant - chance) / np.sqrt(chance * (1 - chance))).mean())
        clicked = shop.clicks(seed).contain(drawn.users, drawn.items)
        assert clicked.any()
        assert drawn.relevant[clicked].all()
    assert np.mean(sizes) == pytest.approx(0.1 * n_pairs, abs=4 * np.sqrt(0.09 * n_pairs / 20))
    # a pair is as likely to be drawn however likely it was shown
    assert np.mean(seen) == pytest.approx(exposure.mean(), abs=0.01)
    assert abs(np.mean(z)) < 4 / np.sqrt(sum(sizes))


def test_traffic_keeps_its_share_and_shuns_judged_pairs(shop, monkeypatch):
    judged = shop.split(seed=5).judged  # 20 of 50 items for each user
    n_pairs = shop.n_users * shop.n_items
    drawn = shop.traffic(0.3, seed=5, without=judged)
    keys = judged.users.astype(np.int64) * shop.n_items + judged.items
    assert not np.isin(drawn.keys, keys).any()
    assert len(drawn) == pytest.approx(0.3 * n_pairs, abs=4 * np.sqrt(0.21 * n_pairs))
    rest = shop.traffic(0.6, seed=5, without=judged)
    assert len(rest) + len(judged) == n_pairs
    monkeypatch.setattr(simulate, "_PAIRS_AT_ONCE", 7 * shop.n_items)
    again = shop.traffic(0.3, seed=5, without=judged)
    np.testing.assert_array_equal(again.keys, drawn.keys)
    np.testing.assert_array_equal(again.relevant, drawn.relevant)


# Files


def test_the_files_hold_the_log_and_the_traffic_of_the_world(shop, tmp_path):
    said = write_world(shop, tmp_path, seed=2, impressions=True, traffic=0.05)
    log, shown = shop.log(2), impressions(shop.log(2))
    rows = pl.read_csv(tmp_path / "impressions.csv")
    assert rows.columns == ["user", "item", "clicked", "time", "propensity"]
    again = Impressions.from_pairs(
        *(rows[name].to_numpy() for name in ("user", "item")),
        clicked=rows["clicked"].to_numpy(),
        propensity=rows["propensity"].to_numpy(),
        user_ids=shop.user_ids,
        item_ids=shop.item_ids,
    )
    for name in ("users", "items", "shown", "clicked", "propensity"):
        np.testing.assert_array_equal(getattr(again, name), getattr(shown, name))
    clicked = rows.filter(pl.col("clicked") == 1).sort("user", "item")
    np.testing.assert_array_equal(clicked["time"].to_numpy(), log.times)
    clicks = pl.read_csv(tmp_path / "clicks.csv")
    assert clicked.select("user", "item").equals(clicks)
    traffic = pl.read_csv(tmp_path / "traffic.csv")
    drawn = shop.traffic(0.05, seed=2, without=shop.split(seed=2).judged)
    np.testing.assert_array_equal(traffic["item"].to_numpy(), drawn.items)
    np.testing.assert_array_equal(traffic["relevance"].to_numpy(), drawn.relevant)
    judged = pl.read_csv(tmp_path / "judged.csv")
    assert traffic.join(judged, on=["user", "item"]).is_empty()
    assert any(f"{len(rows):,} showings, {len(clicks):,} clicked" in line for line in said)


def test_a_world_without_impressions_removes_those_of_the_world_before(shop, tmp_path):
    write_world(shop, tmp_path, seed=2, impressions=True, traffic=0.05)
    write_world(shop, tmp_path, seed=3)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"clicks.csv", "judged.csv", "truth.parquet", "world.json"}
    (tmp_path / "impressions.csv").write_text("a log of mine")
    write_world(shop, tmp_path, seed=4)  # does not touch it
    with pytest.raises(InputError, match=r"impressions.csv is not what `simulate` left there"):
        write_world(shop, tmp_path, seed=4, impressions=True)
    assert (tmp_path / "impressions.csv").read_text() == "a log of mine"

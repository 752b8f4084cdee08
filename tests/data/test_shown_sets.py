"""Logs of showings, read from small files in the layout of the real ones."""

from pathlib import Path

import numpy as np
import pytest

from unexposed.data.clicks import Clicks
from unexposed.data.datasets import DATASETS, RatingData
from unexposed.data.ids import Ids
from unexposed.data.labelled import Impressions
from unexposed.data.pairs import pair_keys
from unexposed.errors import InputError
from unexposed.evaluation.protocols import PROTOCOLS, split_ratings


def impressions(data: RatingData) -> Impressions:
    assert data.logged.shown is not None
    return data.logged.shown


def clicks(data: RatingData) -> Clicks:
    return data.logged.clicks(threshold=4.0)  # of stars: each of these sets has a rule of its own


def shown(data: RatingData) -> dict[tuple[object, object], tuple[int, int]]:
    """Times shown and clicked of each pair, by raw id."""
    rows = impressions(data)
    pairs = zip(rows.user_ids.values[rows.users], rows.item_ids.values[rows.items], strict=True)
    return dict(
        zip(pairs, zip(rows.shown.tolist(), rows.clicked.tolist(), strict=True), strict=True)
    )


def write(folder: Path, name: str, *lines: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(f"{line}\n" for line in lines))


# KuaiRand-Pure

KUAIRAND_HEADER = "user_id,video_id,date,hourmin,time_ms,is_click,is_like,long_view,is_rand,tab"


def write_kuairand(folder: Path, header: str = KUAIRAND_HEADER, click: str = "1") -> Path:
    def row(user: int, video: int, second: int, clicked: object, random: int) -> str:
        return f"{user},{video},20220421,400,{second}301,{clicked},0,0,{random},1"

    write(
        folder,
        "data/log_standard_4_08_to_4_21_pure.csv",
        header,
        row(7, 30, 100, 0, 0),
        row(7, 30, 200, click, 0),
        row(3, 30, 150, 0, 0),
    )
    write(
        folder,
        "data/log_standard_4_22_to_5_08_pure.csv",
        header,
        row(7, 30, 300, 0, 0),
        row(3, 20, 400, 1, 0),
        row(3, 20, 500, 1, 0),
    )
    write(
        folder,
        "data/log_random_4_22_to_5_08_pure.csv",
        header,
        row(3, 40, 350, 0, 1),
        row(9, 20, 360, 1, 1),
        row(9, 20, 370, 0, 1),
    )
    return folder


def test_kuairand_showings_are_counted_over_both_files_and_random_ones_kept_apart(tmp_path):
    data = DATASETS["kuairand_pure"].read(write_kuairand(tmp_path))
    assert shown(data) == {(3, 20): (2, 2), (3, 30): (1, 0), (7, 30): (3, 1)}
    assert data.logged.user_ids == Ids.of([3, 7, 9])  # of both parts
    assert data.logged.item_ids == Ids.of([20, 30, 40])
    assert data.random is not None
    traffic = data.random.traffic(threshold=4.0)
    assert traffic.users.tolist() == [0, 2]
    assert traffic.items.tolist() == [2, 0]
    assert traffic.relevant.tolist() == [False, True]  # clicked in one of two showings


def test_kuairand_clicks_keep_counts_times_and_impressions(tmp_path):
    log = clicks(DATASETS["kuairand_pure"].read(write_kuairand(tmp_path)))
    assert log.users.tolist() == [0, 1]
    assert log.items.tolist() == [0, 1]
    assert log.counts.tolist() == [2, 1]
    assert log.times is not None
    assert log.times.tolist() == [500, 200]  # of the last click, not of the last showing
    assert log.shown is not None
    assert len(log.shown) == 3


# KuaiRec

KUAIREC_HEADER = "user_id,video_id,play_duration,video_duration,time,date,timestamp,watch_ratio"


def write_kuairec(
    folder: Path, header: str = KUAIREC_HEADER, ratio: str = "2.0", big: str = "1593878903.438"
) -> Path:
    def row(user: int, video: int, ratio: object, timestamp: str) -> str:
        return f"{user},{video},1,1,2020-07-05 00:08:23.438,20200705,{timestamp},{ratio}"

    rows = (row(0, 9, 0.4, big), row(0, 9, ratio, "1593878904.5"), row(1, 8, 1.9, big))
    write(folder, "data/big_matrix.csv", header, *rows)
    small = [row(u, v, 3.1 if u == v else 0.5, "") for u in (0, 1) for v in (0, 1)]
    write(folder, "data/small_matrix.csv", header, *small)
    return folder


def test_kuairec_counts_a_video_watched_twice_as_a_click_and_the_rest_as_shown(tmp_path):
    data = DATASETS["kuairec"].read(write_kuairec(tmp_path))
    assert shown(data) == {(0, 9): (2, 1), (1, 8): (1, 0)}
    log = clicks(data)
    assert (log.users.tolist(), log.counts.tolist()) == ([0], [1])
    assert log.times is not None
    assert log.times.tolist() == [1593878904]
    assert data.random is not None
    judged = data.random.judgements(threshold=4.0)
    assert len(judged) == 4
    assert judged.relevant.tolist() == [True, False, False, True]
    assert data.logged.item_ids == Ids.of([0, 1, 8, 9])


# CM100k


def write_cm100k(folder: Path, *extra: str, header: bool = False) -> Path:
    rng = np.random.default_rng(0)
    rows = [
        f"{user}\t{3135550 + track}\t{rng.integers(1, 5)}\t{int(rng.random() < 0.3)}"
        for user in range(40)
        for track in rng.permutation(30)[:20]
    ]
    write(folder, "ratings.txt", *["UserID\tTrackID\tRating\tKnown"] * header, *rows, *extra)
    return folder


def table_of(folder: Path) -> dict[tuple[int, int], tuple[int, int]]:
    rows = np.loadtxt(folder / "ratings.txt", dtype=int, delimiter="\t")
    return {(user, track): (rating, known) for user, track, rating, known in rows.tolist()}


def test_cm100k_logs_what_users_knew_and_judges_other_pairs_known_or_not(tmp_path):
    data, rows = DATASETS["cm100k"].read(write_cm100k(tmp_path)), table_of(tmp_path)
    assert data.random is not None
    assert data.exposure is not None

    def raw(part: object) -> list[tuple[int, int]]:
        ids = data.logged.user_ids.values, data.logged.item_ids.values
        return list(zip(ids[0][part.users].tolist(), ids[1][part.items].tolist(), strict=True))

    assert all(rows[pair][1] == 1 for pair in raw(data.logged))
    assert [rows[pair][0] for pair in raw(data.random)] == data.random.values.tolist()
    assert [rows[pair][1] == 1 for pair in raw(data.exposure)] == data.exposure.exposed.tolist()
    assert raw(data.exposure) == raw(data.random)
    assert not set(raw(data.logged)) & set(raw(data.random))  # the log tells no judged answer
    assert len(data.random) == len(rows) // 2
    # heard or not: as often as in the whole file
    share = np.mean([known for _, known in rows.values()])
    assert data.exposure.exposed.mean() == pytest.approx(share, abs=0.07)
    liked = {pair for pair in raw(data.logged) if rows[pair][0] >= 3}
    assert set(raw(clicks(data))) == liked


# Open Bandit

BANDIT_HEADER = (
    ",timestamp,item_id,position,click,propensity_score,user_feature_0,user_feature_1,"
    "user_feature_2,user_feature_3,user-item_affinity_0"
)


def write_bandit(folder: Path, header: str = BANDIT_HEADER, click: str = "1") -> Path:
    def row(second: int, item: int, clicked: object, chance: float, last: str) -> str:
        time = f"2019-11-24 00:00:{second:02}.004101+00:00"
        return f"0,{time},{item},3,{clicked},{chance},81c,fd4,0b2,{last},0.0"

    bts = (row(1, 5, click, 0.5, "x"), row(2, 5, 0, 0.25, "x"), row(3, 7, 0, 0.1, "y"))
    write(folder, "bts/all/all.csv", header, *bts)
    uniform = [row(4 + n, item, int(item == 6), 0.0125, "x") for n, item in enumerate((5, 6, 6))]
    write(folder, "random/all/all.csv", header, *uniform)
    return folder


def test_open_bandit_users_are_combinations_of_features_and_propensities_are_kept(tmp_path):
    data = DATASETS["open_bandit"].read(write_bandit(tmp_path))
    assert shown(data) == {("81c|fd4|0b2|x", 5): (2, 1), ("81c|fd4|0b2|y", 7): (1, 0)}
    np.testing.assert_allclose(impressions(data).propensity, [0.375, 0.1])
    assert data.random is not None
    assert data.random.shown is not None
    np.testing.assert_allclose(data.random.shown.propensity, 0.0125)
    assert data.random.shown.clicked.tolist() == [0, 2]
    assert data.random.traffic(threshold=4.0).relevant.tolist() == [False, True]
    log = clicks(data)
    assert log.times is not None
    assert log.times.tolist() == [1574553601]


# All of them

WRITERS = {
    "kuairand_pure": write_kuairand,
    "kuairec": write_kuairec,
    "cm100k": write_cm100k,
    "open_bandit": write_bandit,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_data_set_holds_what_its_entry_says(name, tmp_path):
    dataset = DATASETS[name]
    data = dataset.read(WRITERS[name](tmp_path))
    assert data.holds() == dataset.holds
    assert all((tmp_path / file).is_file() for file in dataset.files)
    assert data.random is not None
    keys = pair_keys(data.random.users, data.random.items, len(data.random.item_ids))
    assert (np.diff(keys) > 0).all()


@pytest.mark.parametrize("name", WRITERS)
def test_a_protocol_made_for_stars_splits_it_by_the_rule_of_the_data_set(name, tmp_path):
    data = DATASETS[name].read(WRITERS[name](tmp_path))
    split = split_ratings(data.logged, data.random, PROTOCOLS["ubo-ijcai22"], seed=0)
    assert len(split.train) + len(split.held_out) == data.logged.liked(threshold=9.0).sum() > 0
    assert split.judged.relevant.any()
    assert (split.train.shown is not None) == ("impressions" in DATASETS[name].holds)


@pytest.mark.parametrize(
    ("name", "write_set", "header", "lacking"),
    [
        ("kuairand_pure", write_kuairand, KUAIRAND_HEADER, "is_rand"),
        ("kuairand_pure", write_kuairand, KUAIRAND_HEADER, "is_click"),
        ("kuairec", write_kuairec, KUAIREC_HEADER, "watch_ratio"),
        ("open_bandit", write_bandit, BANDIT_HEADER, "propensity_score"),
        ("open_bandit", write_bandit, BANDIT_HEADER, "user_feature_3"),
    ],
)
def test_a_lacking_column_is_named(name, write_set, header, lacking, tmp_path):
    folder = write_set(tmp_path, header.replace(lacking, lacking.title()))
    with pytest.raises(InputError, match=rf"\.csv has no column '{lacking}'; did you mean"):
        DATASETS[name].read(folder)

import numpy as np
import pytest

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.sampling.validation import ValidationSet, from_log


def log(*pairs: tuple[int, int], n_users: int = 5, n_items: int = 5) -> Clicks:
    users, items = np.array(pairs).T
    return Clicks.from_pairs(users, items, user_ids=Ids.range(n_users), item_ids=Ids.range(n_items))


# clicks by item: 0 → 3, 1 → 2, 2 → 2, 3 → 1, 4 → 0; by user: 0 → 3, 1 → 2, 2 → 2, 3 → 1, 4 → 0
CLICKS = log((0, 0), (0, 1), (0, 3), (1, 0), (1, 2), (2, 1), (2, 2), (3, 0))


def pairs(made: ValidationSet) -> list[tuple[int, int, bool]]:
    return list(zip(made.users.tolist(), made.items.tolist(), made.relevant.tolist(), strict=True))


@pytest.mark.parametrize(
    ("users", "items", "expected"),
    [
        (0.2, 1, [(0, 0, True), (0, 2, False)]),
        # users 1 and 2 are equally active: ties go to the lower index, among items too
        (0.4, 1, [(0, 0, True), (0, 2, False), (1, 0, True), (1, 1, False)]),
        (0.2, 2, [(0, 0, True), (0, 1, True), (0, 2, False), (0, 4, False)]),
        # 0: all that a user clicked; user 0 has no third unclicked item
        (0.2, 0, [(0, 0, True), (0, 1, True), (0, 3, True), (0, 2, False), (0, 4, False)]),
    ],
)
def test_the_most_active_users_give_their_most_popular_clicked_and_unclicked_items(
    users, items, expected
):
    assert pairs(from_log(CLICKS, users=users, items=items)) == expected


def test_users_without_clicks_are_left_out_and_a_full_user_gives_no_negative():
    full = log(*[(0, i) for i in range(5)], (1, 0))
    made = pairs(from_log(full, users=1.0, items=1))
    assert made == [(0, 0, True), (1, 0, True), (1, 1, False)]


def test_explicit_dislikes_take_the_place_of_unclicked_items():
    disliked = (np.array([0, 0], dtype=np.int32), np.array([4, 2], dtype=np.int32))
    made = pairs(from_log(CLICKS, users=0.4, items=1, disliked=disliked))
    assert made == [(0, 0, True), (0, 2, False), (1, 0, True), (1, 1, False)]
    only_rare = (np.array([0], dtype=np.int32), np.array([4], dtype=np.int32))
    assert (0, 4, False) in pairs(from_log(CLICKS, users=0.4, items=1, disliked=only_rare))


def test_drawn_negatives_are_unclicked_and_as_popular_as_clicks_are():
    rng = np.random.default_rng(0)
    users, items = np.arange(300).repeat(4), (rng.random(1200) ** 3 * 50).astype(int)
    clicks = log(*zip(users, items, strict=True), n_users=300, n_items=50)
    made = from_log(clicks, users=1.0, items=0, negatives="drawn", rng=rng)
    unclicked = made.items[~made.relevant]
    assert made.relevant.sum() == len(clicks)
    assert not np.isin(made.keys(50)[~made.relevant], clicks.keys).any()
    drawn = np.bincount(unclicked, minlength=50) / len(unclicked)
    free = np.bincount(users, minlength=300)[:, None] * np.ones(50)
    free[clicks.users, clicks.items] = 0  # chances of (user, item), but for what was clicked
    chance = free.sum(axis=0) * clicks.item_counts
    np.testing.assert_allclose(drawn, chance / chance.sum(), atol=0.02)
    assert abs(drawn - 1 / 50).max() > 0.06  # which an even draw would not give

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unexposed.data.ids import Ids, Texts
from unexposed.errors import InputError

USERS, ITEMS = Ids.of(["a", "b", "c"]), Ids.of([10, 20])
TEXTS = st.text(st.characters(), max_size=6)  # lone surrogates included


def stored(ids: Ids) -> Ids:
    """As they come back from a file: arrays that cannot be written to."""
    arrays = {name: array.copy() for name, array in ids.packed().items()}
    for array in arrays.values():
        array.flags.writeable = False
    return Ids.unpacked(arrays)


def test_ids_know_their_indices_and_nothing_else():
    assert USERS.index(["c", "nobody", "a"]).tolist() == [2, -1, 0]
    assert ITEMS.index([20, 11]).tolist() == [1, -1]
    unsorted = Ids.of([7, -2, 30])
    assert unsorted.index(np.array([30, 31, -2, 7])).tolist() == [2, -1, 1, 0]
    mixed = Ids.of([("x", 1), None, 2.5])
    assert mixed.index([2.5, ("x", 1)]).tolist() == [2, 0]


def test_integer_ids_are_found_by_what_equals_them():
    ids = Ids.of([0, 1, 20, -(2**63)])
    given = [np.int32(20), 20.0, True, 20.5, "20", None, 2**63, -(2**63), (20,), float("nan")]
    assert ids.index(given).tolist() == [2, 2, 1, -1, -1, -1, -1, 3, -1, -1]
    assert ids.index(np.array([20, 2**63], dtype=np.uint64)).tolist() == [2, -1]
    assert Ids.of([]).index([1, 2]).tolist() == [-1, -1]


@given(st.lists(TEXTS, unique=True, max_size=20), st.lists(TEXTS, max_size=5))
def test_packed_texts_are_the_same_ids_and_found_by_searching_as_by_a_dict(raw, others):
    ids = Ids(np.array([*raw, None], dtype=object)[:-1])
    again = stored(ids)
    assert isinstance(again.values, Texts)
    assert again.values.tolist() == raw
    assert again == ids
    expected = [raw.index(t) if t in raw else -1 for t in raw + others]
    assert [again._search(t) for t in raw + others] == expected
    assert again.index(raw + others).tolist() == expected
    assert stored(again) == ids


@given(st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=20), st.integers())
def test_packed_integers_are_the_same_ids_and_found(raw, other):
    again = stored(Ids.of(raw))
    assert again == Ids.of(raw)
    expected = [*range(len(raw)), raw.index(other) if other in raw else -1]
    assert again.index([*raw, other]).tolist() == expected
    assert again.index(np.array(raw, dtype=np.int64)).tolist() == expected[:-1]


def test_texts_give_what_an_array_of_them_would():
    raw = ["zero", "", "zwei ü", "\udc80", "four" * 100]
    array, texts = np.array(raw, dtype=object), Texts.of(raw)
    assert list(texts) == raw
    assert texts[-1] == raw[-1]
    for at in (slice(3, 0, -2), [2, 2, 0], np.array([[0, -1], [-5, 3]]), array != ""):
        assert texts[at].tolist() == array[at].tolist()
    with pytest.raises(IndexError):
        texts[5]


@pytest.mark.parametrize(
    "damage", [{"run": np.full(4, 128, np.uint8)}, {"order": np.array([7, 8, 9], dtype=np.int32)}]
)
def test_damaged_ids_are_refused_in_a_sentence(damage):
    ids = Ids.unpacked(Ids.of(["b", "a", "ü"]).packed() | damage)
    with pytest.raises(InputError, match="raw ids of this model are damaged"):
        ids.values.tolist(), ids._search("a")

"""Features by raw id: how columns are encoded, kept for later rows, and refused."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from small import clicks_of
from unexposed.data.features import Categories, Encoding, Features, with_items
from unexposed.data.labelled import Impressions
from unexposed.data.log import read_log
from unexposed.data.read_features import MOST_VALUES, read_features
from unexposed.errors import InputError

LOG = read_log({"user": [1, 1, 2, 3], "item": ["a", "b", "a", "c"]})
ITEMS = """sku,price,brand,tags,title,colour
a,1,x,p|q,one,red
b,2,x,q,two,red
d,,y,,three,red
e,6,y, p ,four,red
"""


def items(text: str = ITEMS, *, said: list[str] | None = None, **given) -> Features:
    Path("items.csv").write_text(text)
    return read_features(
        "items.csv", LOG, role="item", say=[].append if said is None else said.append, **given
    )


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_numbers_are_standardised_categories_and_lists_have_a_column_a_value():
    found = items()
    assert found.ids.values.tolist() == ["a", "b", "d", "e"]
    names = ["constant", "price", "brand=x", "brand=y", "tags=p", "tags=q"]
    assert found.encoding.columns == names
    price = (np.array([1, 2, 6]) - 3) / np.std([1, 2, 6])
    expected = np.array(
        [
            [1, price[0], 1, 0, 1, 1],
            [1, price[1], 1, 0, 0, 1],
            [1, 0, 0, 1, 0, 0],  # no price: the mean; no tags
            [1, price[2], 0, 1, 1, 0],
        ]
    )
    np.testing.assert_allclose(found.matrix, expected, atol=1e-6)


def test_one_line_says_what_was_taken_for_what_and_what_was_left_out():
    said: list[str] = []
    items(said=said)
    assert said == [
        "items.csv: item = sku, price a number, brand categories (2), tags lists of categories "
        "(2), title dropped (no two rows share a value), colour dropped (it is constant); "
        "1 of 3 items are not in it"
    ]


def test_every_kind_of_source_gives_the_same_features():
    frame = pl.DataFrame(
        {
            "sku": ["a", "b", "d", "e"],
            "price": [1, 2, None, 6],
            "brand": ["x", "x", "y", "y"],
            "tags": [["p", "q"], ["q"], [], ["p"]],
        }
    )
    frame.write_parquet("items.parquet")
    columns = frame.to_dict(as_series=False)
    for source in ("items.parquet", frame, columns, pd.DataFrame(columns)):
        found = read_features(source, LOG, role="item")
        assert found.encoding == items().encoding
        np.testing.assert_array_equal(found.matrix, items().matrix)


def test_rare_values_share_a_column_which_later_unknown_ones_join():
    rows = [f"{n},v{n // 2}" for n in range(2 * MOST_VALUES + 4)] + ["x,once"]
    log = clicks_of(np.eye(3))
    source = "item,value\n" + "\n".join(rows)
    Path("values.csv").write_text(source)
    found = read_features("values.csv", log, role="item", say=[].append)
    (coding,) = found.encoding.codings
    assert isinstance(coding, Categories)
    assert coding.other
    assert len(coding.values) == MOST_VALUES
    assert "once" not in coding.values
    assert found.matrix[:, -1].sum() == 5  # two values beyond the most, and the single one
    later = {"item": [0, 1, 2], "value": ["v0", "new", None]}
    rows = read_features(later, log, role="item", encoding=found.encoding).matrix[:, 1:]
    assert rows.sum(axis=1).tolist() == [1, 1, 0]
    assert rows[1, -1] == 1
    assert rows[0, coding.values.index("v0")] == 1


def test_an_encoding_survives_json_and_encodes_later_rows_alike():
    first = items()
    again = Encoding.from_json(json.loads(json.dumps(first.encoding.to_json())))
    assert again == first.encoding
    later = items("sku,tags,brand,price\na,q|p,x,1\nz,,z,9\n", encoding=again)
    np.testing.assert_array_equal(later.matrix[0], first.matrix[0])
    # a brand that the training did not know is none
    np.testing.assert_allclose(later.matrix[1], [1, 6 / np.std([1, 2, 6]), 0, 0, 0, 0], rtol=1e-6)


def test_large_numbers_have_a_finite_deviation_and_later_ones_are_held_at_ten():
    found = items("sku,n\na,1e300\nb,-1e300\n")
    np.testing.assert_allclose(found.matrix[:, 1], [1, -1])
    known = items("sku,n\na,1\nb,2\n").encoding
    assert items("sku,n\na,1e300\n", encoding=known).matrix.tolist() == [[1, 10]]


REFUSED = {
    "twice": ("sku,price\na,1\nb,2\na,3\n", "items.csv, line 4: the id 'a' in column 'sku' stands"),
    "nobody known": ("sku,price\nx,1\ny,2\n", "items.csv names no item of the log"),
    "infinite": ("sku,price\na,1\nb,inf\n", "items.csv, line 3: the price 'inf' is not a finite"),
    "not a number": (
        "sku,price\na,1\nb,2\nc,n/a\n",
        "items.csv, line 4: the price 'n/a' is not a finite number; correct it, or leave it empty",
    ),
    "nothing to tell": ("sku,name\na,x\nb,y\n", "every column of features is constant or rare"),
    "only ids": ("sku\na\nb\n", "has only ids: add columns of features of items"),
    "no ids": ("price,brand\n1,x\n", "has no column of item ids"),
    "missing id": ("sku,price\na,1\n,2\n", "items.csv, line 3: the id in column 'sku' is missing"),
    "no rows": ("sku,price\n", "items.csv"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_features_are_refused_with_one_sentence(case):
    text, words = REFUSED[case]
    with pytest.raises(InputError) as refused:
        items(text)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


# The catalogue


def test_items_without_a_click_join_the_catalogue_behind_the_others():
    more = with_items(LOG, items().ids)
    assert more.item_ids.values.tolist() == ["a", "b", "c", "d", "e"]
    assert more.item_counts.tolist() == [2, 1, 1, 0, 0]
    assert with_items(more, items().ids) is more
    np.testing.assert_array_equal(more.items, LOG.items)
    shown = Impressions.from_pairs([0], [1], user_ids=LOG.user_ids, item_ids=LOG.item_ids)
    more = with_items(replace(LOG, shown=shown), items().ids)
    assert more.shown is not None
    assert more.shown.n_items == more.n_items == 5

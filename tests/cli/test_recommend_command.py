"""`recommend` and `similar`: ids unchanged, filters kept, users that the model never saw."""

import csv
import json
import os
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

from unexposed.data.log import read_log
from unexposed.methods import make
from unexposed.model import recommend as serving


def lines(text: str) -> list[list[str]]:
    return [line.split(",") for line in text.splitlines()]


@pytest.fixture
def umf(here):
    make("umf", epochs=5, initial_scale=0.5).fit(read_log("log.csv")).save("model")


# Ids

HOSTILE = [
    *["a,b", 'say "hi"', "two\nlines", "carriage\rreturn", "<script>alert(1)</script>", "&amp;"],
    *["\U0001f600", "\u202eשלום", " spaces ", "\ttab", "007", "1e3", "NULL", "nan", "-", "=1+1"],
    *["\ufeffmark", "e\u0301", "\u00e9", "\u2028", "'; DROP TABLE users; --", "[bold]x[/bold]"],
    "x" * 1_000_000,
]


@pytest.mark.parametrize("name", ["log.tsv", "log.parquet"])
def test_hostile_ids_survive_from_log_to_recommendations_byte_for_byte(done, name):
    rows = [
        (user, HOSTILE[(at + k) % len(HOSTILE)]) for at, user in enumerate(HOSTILE) for k in (0, 1)
    ]
    table = pl.DataFrame(rows, schema=["user", "item"], orient="row")
    if name.endswith("parquet"):
        table.write_parquet(name)
    else:
        Path(name).write_text(table.write_csv(separator="\t"), encoding="utf-8")
    _, err = done(f"fit {name} --method popularity --out model")
    assert f"by {len(HOSTILE)} users on {len(HOSTILE)} items" in err
    found = []
    for out in ("recs.csv", "recs.parquet"):
        done(f"recommend model -k 3 --out {out}")
        if out.endswith("parquet"):
            found.append(list(pl.read_parquet(out).select("user", "item").iter_rows()))
            continue
        with open(out, newline="", encoding="utf-8") as stream, unlimited_fields():
            found.append([(line["user"], line["item"]) for line in csv.DictReader(stream)])
    assert found[0] == found[1]
    assert {user for user, _ in found[0]} == set(HOSTILE)
    assert {item for _, item in found[0]} <= set(HOSTILE)
    assert not set(found[0]) & set(rows)  # what was clicked is not recommended


@contextmanager
def unlimited_fields():
    before = csv.field_size_limit(2**31 - 1)
    yield
    csv.field_size_limit(before)


def test_integers_of_128_bits_come_back_unchanged(done):
    ids = [2**100 + n for n in range(5)]
    log = pl.DataFrame({"user": pl.Series(ids, dtype=pl.Int128), "item": list("xyzxy")})
    log.write_parquet("log.parquet")
    done("fit log.parquet --method popularity --out model")
    done("recommend model -k 1 --out recs.parquet")
    assert sorted(pl.read_parquet("recs.parquet")["user"].to_list()) == ids


def test_recommend_for_listed_users_prints_csv(done):
    done("fit log.csv --method popularity --out model")
    Path("ids.txt").write_text("u3\n\nu1\nnobody\n")
    out, err = done("recommend model --users ids.txt -k 1")
    assert [row[0] for row in lines(out)] == ["user", "u3", "u1"]
    assert "left out 1 user the model never saw, first 'nobody'" in err


# Filters


def test_recommend_keeps_to_lists_of_items(done, umf):
    Path("some.txt").write_text("i1\ni2\nnovelty\n")
    out, err = done("recommend model -k 7 --show-clicked --allow some.txt")
    assert {row[1] for row in lines(out)[1:]} == {"i1", "i2"}
    assert "some.txt: the model never saw 1 of 3 items" in err
    out, _ = done("recommend model -k 7 --show-clicked --deny some.txt")
    assert {row[1] for row in lines(out)[1:]} == {"i0", "i3", "i4", "i5", "i6"}


def test_recommend_keeps_to_candidates_exposure_and_penalty(done, umf):
    Path("pairs.csv").write_text("rating,user,item\n1,u3,i4\n1,u3,i5\n2,u5,i1\n")
    Path("ids.txt").write_text("u3\nu5\nu7\n")
    base = "recommend model --users ids.txt -k 7 --show-clicked"
    out, _ = done(f"{base} --candidates pairs.csv")
    pairs = {(row[0], row[1]) for row in lines(out)[1:]}
    assert pairs == {("u3", "i4"), ("u3", "i5"), ("u5", "i1")}
    header, *rows = lines(done(f"{base} --minimum-exposure 0.9")[0])
    assert header == ["user", "item", "rank", "score", "relevance", "exposure"]
    assert rows
    assert all(float(row[5]) >= 0.9 for row in rows)
    out, _ = done(f"{base} --popularity-penalty 100")
    counts = dict(pl.read_csv("log.csv").unique().group_by("item").len().iter_rows())
    ranked = [counts[row[1]] for row in lines(out)[1:8]]
    assert ranked == sorted(ranked)


# Users that the model never saw


def test_users_of_a_newer_log_are_folded_in(done, umf):
    Path("newer.csv").write_text("user,item\nnew,i1\nnew,i2\nu3,i5\nlost,novelty\n")
    out, err = done("recommend model --new-clicks newer.csv -k 3")
    rows = lines(out)[1:]
    assert [row[0] for row in rows if row[2] == "1"] == ["new", "u3"]
    assert not {row[1] for row in rows if row[0] == "new"} & {"i1", "i2"}
    assert "i5" not in {row[1] for row in rows if row[0] == "u3"}
    assert "left out 1 user the model never saw" in err
    words = "--unknown popular --out recs.parquet -k 3"
    _, err = done(f"recommend model --new-clicks newer.csv {words}")
    table = pl.read_parquet("recs.parquet")
    assert table.filter(~pl.col("known"))["user"].to_list() == ["lost"] * 3
    assert "recommendations for 3 users" in err


# Titles and similar items

TITLES = "coat;title\ni1;One, or the first\ni3;Three\nnovelty;none of ours\n"


def test_lists_and_similar_items_show_the_titles_of_items(done, umf):
    Path("names.csv").write_text(TITLES)
    line = "recommend model -k 7 --show-clicked --titles names.csv --delimiter ;"
    out, err = done(line)
    rows = list(csv.DictReader(out.splitlines()))
    assert list(rows[0])[:4] == ["user", "item", "title", "rank"]
    titles = dict.fromkeys((f"i{n}" for n in range(7)), "")
    titles |= {"i1": "One, or the first", "i3": "Three"}
    assert {row["item"]: row["title"] for row in rows} == titles
    assert "names.csv: names of 2 of 7 items" in err
    Path("names.tsv").write_text(TITLES.replace(";", "\t"))
    out, _ = done("similar model --item i3 -k 6 --titles names.tsv --json")
    assert {row["item"]: row["title"] for row in json.loads(out)}["i1"] == "One, or the first"


def test_ctrl_c_leaves_nothing_behind(run, umf, monkeypatch):
    Path("recs.parquet").write_text("precious")
    before = sorted(os.listdir())
    blocks = iter([serving.Server.table])

    def table(self, *given):
        for make_table in blocks:
            return make_table(self, *given)
        assert sorted(os.listdir()) != before  # it is being written
        raise KeyboardInterrupt

    monkeypatch.setattr(serving, "SERVED_ENTRIES", 7)
    monkeypatch.setattr(serving.Server, "table", table)
    code, _, err = run("recommend model -k 2 --out recs.parquet")
    assert (code, err) == (130, "interrupted\n")
    assert sorted(os.listdir()) == before
    assert Path("recs.parquet").read_text() == "precious"

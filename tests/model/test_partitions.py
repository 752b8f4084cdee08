"""A model saved by partitions is the same model, opened whole, by partition or for some users."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import unexposed as ux
from command import JUDGED, LOG, ended
from small import clicks_of
from unexposed import tensors
from unexposed.data.ids import Ids
from unexposed.data.share import PARTITIONS, partitions, partitions_among
from unexposed.errors import InputError
from unexposed.methods import METHODS, load, load_partitions, make, mf
from unexposed.model.filters import Rules
from unexposed.model.lists import FILES, parts_in, sample, write_lists
from unexposed.progress import Silent
from unexposed.settings import known

N_USERS = 90  # most of 64 partitions have users, and some have none
IDS = {
    "integers": Ids(np.random.default_rng(1).permutation(10 * N_USERS)[:N_USERS]),
    "texts": Ids.of(f"kätzchen {n * 7 % N_USERS}" for n in range(N_USERS)),
    "mixed": Ids.of([*range(40), *(f"u{n}" for n in range(N_USERS - 40))]),
}


@pytest.fixture(scope="module", autouse=True)
def no_flush():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensors, "flush", lambda _: None)  # 65 files a model
        yield


def fitted(name: str = "ubo", kind: str = "texts") -> ux.Model:
    rng = np.random.default_rng(0)
    clicks = clicks_of(rng.random((N_USERS, 12)) < np.linspace(0.6, 0.1, 12))
    asked = {"epochs": 1, "dim": 3, "engine": "reference", "refit": False, "n_models": 2}
    given = {key: value for key, value in asked.items() if key in known(METHODS[name])}
    return make(name, **given).fit(replace(clicks, user_ids=IDS[kind]), progress=Silent())


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> tuple[ux.Model, Path]:
    model, folder = fitted(), tmp_path_factory.mktemp("saved") / "model"
    model.save(folder, partitioned=True)
    return model, folder


def test_a_user_is_in_the_partition_of_the_version_before():
    assert partitions(Ids.of(["alice", "bob", "Zoë", "007"])).tolist() == [9, 18, 26, 61]
    assert partitions(Ids.of([0, 1, 7, -1, 2**40])).tolist() == [47, 1, 23, 32, 9]


@pytest.mark.parametrize("name", ["ubo", "cjmf", "ease", "random", "popularity"])
def test_a_model_saved_by_partitions_opens_as_the_same_whole_model(name, tmp_path):
    model = fitted(name, "mixed" if name == "ease" else "integers")
    model.save(tmp_path / "parted", partitioned=True)
    opened = load(tmp_path / "parted", verify=True)
    assert opened.facts == model.facts
    model.save(tmp_path / "one")
    opened.save(tmp_path / "parted")  # replaces the partitions by one file
    assert sorted(os.listdir(tmp_path)) == ["one.safetensors", "parted.safetensors"]
    one, other = (tmp_path / f"{name}.safetensors" for name in ("one", "parted"))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize(
    ("name", "kind"),
    [("ubo", "integers"), ("ubo", "texts"), ("ubo", "mixed"), ("random", "integers")],
)
def test_partitions_recommend_as_the_whole_model_does(name, kind, tmp_path):
    model = fitted(name, kind)
    model = replace(model, parameters={n: np.round(t, 1) for n, t in model.parameters.items()})
    model.save(tmp_path / "model", partitioned=True)  # its rounded scores have ties
    found = load_partitions(tmp_path / "model")
    assert found.ids_are == kind
    rules = Rules()
    held = [one for one in found if one.clicks.n_users]
    assert sum(one.clicks.n_users for one in held) == N_USERS
    for one in held:
        users = one.user_ids.values.tolist()
        for by in (rules, Rules(popularity_penalty=0.1)):
            lists = (m.recommend(users, 4, rules=by).rows() for m in (one, model))
            assert next(lists) == next(lists)
    as_text = kind == "mixed"
    rows = write_lists(parts_in(found), tmp_path / "lists", 4, rules, as_text=as_text)
    lists = pl.read_parquet(tmp_path / "lists" / "*.parquet")
    assert len(lists) == rows
    assert lists.n_unique(["user", "rank"]) == rows


def test_a_model_of_some_users_is_opened_by_their_raw_ids(saved):
    model, folder = saved
    found = load_partitions(folder)
    wanted = ["kätzchen 3", "kätzchen 88", "nobody", "kätzchen 0"]
    some = found.of_users(Ids.of(wanted))
    assert set(some.user_ids.values.tolist()) == set(wanted) - {"nobody"}
    whole = model.user_ids.index(some.user_ids.values)
    assert some.clicks.share is not None
    assert some.clicks.share.users.tolist() == sorted(whole.tolist())
    assert some.clicks.item_counts.tolist() == model.clicks.item_counts.tolist()
    assert_rows(some, model, whole)
    assert_rows(found.at(np.array([5, 77])), model, np.array([5, 77]))
    assert len(found.of_users(Ids.of(["nobody"])).user_ids) == 0


def assert_rows(some: ux.Model, model: ux.Model, users: Any) -> None:
    for name in ("user_factors", "exposure_user_factors"):
        assert some.parameters[name].tobytes() == model.parameters[name][users].tobytes()
    start = model.clicks.user_start
    items = [model.clicks.items[start[user] : start[user + 1]] for user in users]
    assert some.clicks.items.tolist() == np.concatenate(items).tolist()


def test_an_integer_is_found_as_its_text_and_a_text_as_its_integer(tmp_path):
    for kind, wanted in {"integers": [str(IDS["integers"].values[7])], "mixed": ["7"]}.items():
        fitted("popularity", kind).save(tmp_path / kind, partitioned=True)
        some = load_partitions(tmp_path / kind).of_users(Ids.of(wanted))
        assert [str(raw) for raw in some.user_ids.values.tolist()] == wanted


def test_unknown_users_get_the_popular_list_of_the_whole_model(saved):
    model, folder = saved
    rules = Rules(unknown="popular")
    found = load_partitions(folder)
    lists = found[3].recommendations(["new"], 4, rules=rules, whole=sample(found, rules))
    assert next(lists).rows() == model.recommend(["new"], 4, rules=rules).rows()


def test_a_raw_id_belongs_to_the_partition_it_was_saved_in():
    for ids in IDS.values():
        for number, raw in zip(partitions(ids).tolist(), ids.values.tolist(), strict=True):
            assert partitions_among(ids, Ids.of([raw])).tolist() == [number]
            assert partitions_among(ids, Ids.of(["x", raw])).tolist()[1] == number


# Refusals


def test_a_part_of_a_model_is_not_saved(saved, tmp_path):
    saved[0].save(tmp_path / "whole")
    with pytest.raises(InputError, match="saved as a whole.*partitioned=True"):
        load_partitions(tmp_path / "whole")
    with pytest.raises(InputError, match="of 90 users: save the whole one"):
        load_partitions(saved[1])[0].save(tmp_path / "part")
    assert os.listdir(tmp_path) == ["whole.safetensors"]


def test_a_lost_or_damaged_shard_is_named(tmp_path):
    fitted("popularity").save(tmp_path / "model", partitioned=True)
    shards = sorted(tmp_path.glob("model-*"), key=os.path.getsize)
    whole = shards[-1].read_bytes()
    shards[-1].write_bytes(whole[:-2] + bytes([whole[-2] ^ 64]) + whole[-1:])
    with pytest.raises(InputError, match=f"{shards[-1].name} is damaged"):
        load(tmp_path / "model", verify=True)
    shards[-1].write_bytes(shards[0].read_bytes())
    with pytest.raises(InputError, match="do not hold each user once"):
        load(tmp_path / "model")
    shards[-1].unlink()
    with pytest.raises(InputError, match=f"cannot read .*{shards[-1].name}: No such file"):
        load(tmp_path / "model")


@pytest.mark.parametrize("names", [["notes.txt"], ["part-00.parquet"], sorted(FILES)])
def test_lists_do_not_replace_the_files_of_a_person(names, saved, tmp_path):
    (tmp_path / "lists").mkdir()
    for name in names:
        pl.DataFrame({"user": [1], "item": [2]}).write_parquet(tmp_path / "lists" / name)
    with pytest.raises(InputError, match="which would be lost"):
        write_lists(parts_in(load_partitions(saved[1])), tmp_path / "lists", 4, Rules())
    assert sorted(os.listdir(tmp_path / "lists")) == names


# Commands


@pytest.fixture
def models(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("log.csv").write_text(LOG)
    Path("judged.csv").write_text(JUDGED)
    model = make("umf", epochs=3, engine="reference").fit(ux.read_log("log.csv"), progress=Silent())
    model.save("whole")
    model.save("parted", partitioned=True)


@pytest.mark.parametrize(
    "words",
    [
        "recommend {} --users u3,u7,nobody -k 2",
        "recommend {} --users nobody -k 2 --unknown popular",
        "evaluate {} --judged judged.csv --json",
        "evaluate {} --judged judged.csv --protocol catalogue --json",
        "similar {} --item i3 -k 2",
    ],
)
def test_a_command_prints_the_same_for_a_model_by_partitions(words, models, capsys, monkeypatch):
    monkeypatch.setattr(mf, "SECONDS", 0)  # a part of the users has no mf beside it
    outputs = []
    for folder in ("whole", "parted"):
        assert ended(*words.format(folder).split()) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] != ""


def test_the_lists_of_all_users_are_the_same_rows_in_any_form(models, capsys):
    tables = []
    for folder in ("whole", "parted"):
        for out in (f"{folder}.csv", f"{folder}-lists/"):
            assert ended("recommend", folder, "-k", "2", "--out", out) == 0
            read = pl.read_csv if out.endswith(".csv") else pl.read_parquet
            files = out if out.endswith(".csv") else f"{out}*.parquet"
            tables.append(read(files).sort("user", "rank").select("user", "item", "rank").rows())
        assert "24 recommendations for 12 users" in capsys.readouterr().err
        assert set(os.listdir(f"{folder}-lists")) == set(FILES)
    assert tables[0] == tables[1] == tables[2] == tables[3]
    assert len(FILES) == PARTITIONS

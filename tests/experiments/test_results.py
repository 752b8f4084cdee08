"""Results are stored without loss, and survive a kill."""

import json

import numpy as np
import pytest

from unexposed.errors import InputError
from unexposed.experiments import results
from unexposed.experiments.results import Results


def line(arm: str, seed: int, **more: object) -> dict[str, object]:
    return {"arm": arm, "seed": seed, "settings": {"dim": len(arm)}, **more}


def with_values(arm: str, seed: int) -> dict[str, object]:
    values = np.random.default_rng([seed, len(arm)]).normal(size=9).tolist()
    stored = {"users": 9, "who": "abc", "means": {"auc": float(np.mean(values))}}
    return line(arm, seed, protocols={"judged": {**stored, "values": {"auc": values}}})


RUNS = [with_values(arm, seed) for arm in ("mf", "umf") for seed in (0, 1)]


def test_runs_come_back_with_the_values_of_users_to_the_last_bit(tmp_path):
    place = Results(tmp_path, "some")
    place.write(RUNS, {})
    for found, asked in zip(place.read(), RUNS, strict=True):
        values = found["protocols"]["judged"].pop("values")["auc"]
        own = asked["protocols"]["judged"]
        assert values.tobytes() == np.array(own["values"]["auc"]).tobytes()
        assert found["protocols"]["judged"] == {k: v for k, v in own.items() if k != "values"}
        assert {**found, "protocols": 0} == {**asked, "protocols": 0}


@pytest.mark.parametrize("runs", [RUNS, RUNS[:1], [line("mf", 0), line("mf", 1, dim=3)], []])
def test_what_runs_have_in_common_is_stored_once_and_nothing_is_lost(runs):
    assert results.unfolded(results.folded(runs)) == runs


def test_runs_of_the_journal_follow_and_a_kill_while_the_file_is_written_loses_none(
    tmp_path, monkeypatch
):
    place = Results(tmp_path, "some")
    place.write(RUNS[:2], {})
    for run in RUNS[2:]:
        results.append(place.journal, run)
    asked = [(run["arm"], run["seed"]) for run in RUNS]

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(results, "_text", killed)  # the values are written, the file is not
        with pytest.raises(KeyboardInterrupt):
            place.write(RUNS, {})
    assert [(run["arm"], run["seed"]) for run in place.read()] == asked
    place.write(place.read(), {})
    assert {path.name for path in tmp_path.iterdir()} == {"some.json", "some.parquet"}
    assert [(run["arm"], run["seed"]) for run in place.read()] == asked


def test_a_line_cut_short_by_a_kill_does_not_count_and_is_mended(tmp_path):
    path = tmp_path / "some.jsonl"
    results.append(path, line("mf", 0))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:-1])  # only its end is missing
    assert results.read_journal(path) == [line("mf", 0)]
    assert results.mend(path)
    assert not results.mend(path)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("text", ["{", "[1]", '{"arm": "mf"}', '{"arm": 3, "seed": 0}', "", "\x00"])
def test_damage_is_named(tmp_path, text):
    place = Results(tmp_path, "some")
    good = json.dumps(line("mf", 0))
    place.journal.write_text(f"{good}\n{text}\n{good}\n")
    with pytest.raises(InputError, match=r"some\.jsonl, line 2 is damaged; remove that line"):
        place.read()
    place.write(RUNS, {})
    place.file.write_text(place.file.read_text().replace('"seed":', '"sed":'))
    with pytest.raises(InputError, match=r"some\.json is damaged"):
        place.read()
    place.write(RUNS, {})
    place.values.write_text(text)
    with pytest.raises(InputError, match=r"some\.parquet is damaged"):
        place.read()


def test_a_result_that_is_not_a_number_is_never_written(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        results.append(tmp_path / "some.jsonl", line("mf", 0, seconds=float("nan")))
    assert results.read_journal(tmp_path / "some.jsonl") == []

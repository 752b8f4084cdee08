"""Whatever a file holds, a command that reads it ends well or in one sentence."""

import io
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from command import ended
from unexposed.data.log import read_log
from unexposed.methods import make

N = 40
TABLE = pl.DataFrame(
    {
        "user": [f"u{n % 8}" for n in range(N)],
        "item": [n * n % 11 for n in range(N)],
        "rating": [1 + n % 5 for n in range(N)],
        "relevance": [n % 2 for n in range(N)],
        "title": [f"Film, {n}" for n in range(N)],
    }
)
TOML = b"""kind = 'compare'
seeds = 1
[data]
simulate = { users = 20, items = 9 }
[methods.popularity]
"""


def parquet(**options: object) -> bytes:
    buffer = io.BytesIO()
    TABLE.write_parquet(buffer, **options)
    return buffer.getvalue()


TABLES = {
    "odd.csv": TABLE.write_csv().encode(),
    "odd.tsv": TABLE.write_csv(separator="\t", quote_style="always").encode(),
    "odd.parquet": parquet(),
    "odd.pq": parquet(compression="uncompressed", data_page_size=64),
    "arrow.parquet": parquet(use_pyarrow=True, pyarrow_options={"data_page_version": "2.0"}),
}
IDS = {"odd.txt": b"u1\nu2\n5\n"}
COMMANDS = {
    "fit {} --method popularity --out other --force --rating rating --threshold 2": TABLES,
    "update model {} --out other --force": TABLES,
    "recommend model -k 2 --new-clicks {} --unknown popular": TABLES,
    "recommend model -k 2 --candidates {}": TABLES,
    "recommend model -k 2 --deny {} --out lists.tsv": IDS,
    "evaluate model --judged {} --json": TABLES,
    "compare --train log.csv --judged {} --methods popularity --seeds 1": TABLES,
    "report model --titles {} --json": TABLES,
    "run {} --out results": {"odd.toml": TOML},
}


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    TABLE.write_csv("log.csv")
    make("popularity").fit(read_log("log.csv", say=print)).save("model")
    return tmp_path


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("words", COMMANDS)
@given(data=st.data())
def test_a_command_ends_well_or_in_one_sentence(here, words, capfd, data):
    whole = COMMANDS[words]
    name = data.draw(st.sampled_from(sorted(whole)))
    # no digits: an experiment on a million users is not what is asked here
    content = bytearray(whole[name])
    new = st.binary(max_size=6) | st.sampled_from([b'"', b"\n", b"\r", b"\0", b",", b"\xff", b"-"])
    edits = st.tuples(st.integers(0, len(content)), new, st.integers(0, 5))
    for at, put, removed in data.draw(st.lists(edits, min_size=1, max_size=4)):
        digits = sum(byte in b"0123456789" for byte in put)
        content[at : at + removed] = b"" if digits and name.endswith("toml") else put
    Path(name).write_bytes(content)
    capfd.readouterr()
    code = ended(*words.format(name).split())
    err = capfd.readouterr().err
    assert code in (0, 2), err
    assert "panicked" not in err
    if code == 2:
        last = err.splitlines()[-1]
        assert last.startswith("error: ")
        assert last.isprintable()

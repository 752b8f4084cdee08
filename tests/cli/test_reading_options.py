"""Every command that reads a log takes the same words about it, and says how it was read."""

from inspect import signature
from pathlib import Path

import pytest

from unexposed.cli import COMMANDS
from unexposed.cli.tune import log_called

WORDS = {"click", "shown", "event", "count", "time", "propensity"}
READING = ["fit", "compare", "tune", "update", "recommend", "evaluate"]
EVENTS = "user,item,event,ts\n" + "".join(
    f"u{u},i{(u * k) % 7},{event},2024-01-0{k}\n"
    for u in range(12)
    for k in (1, 2, 3)
    for event in ("view", "buy", "cart")[: 1 + k % 3]
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_commands_that_read_a_log_take_every_word_and_others_take_none(command):
    taken = set(signature(command).parameters) & WORDS
    assert taken == (WORDS if command.__name__ in READING else set())


def test_an_event_log_is_refused_until_its_clicks_are_named(run, done):
    Path("events.csv").write_text(EVENTS)
    code, _, err = run("fit events.csv --method popularity --out out")
    assert code == 2
    assert err.startswith("error: events.csv: column 'event' holds view (36), buy (24), cart (12);")
    _, err = done("fit events.csv --method popularity --out out --click buy --shown view")
    said, *_ = err.splitlines()
    assert said == (
        "events.csv: user = user, item = item, event = event, time = ts; a click is event = buy, "
        "an impression event = view; 72 rows: 24 clicks on 22 pairs, 36 impressions, 12 dropped; "
        "ts is in dates, 2024-01-01 … 2024-01-02; dropped cart (12), which neither click= nor "
        "shown= names"
    )
    assert "Warning" not in err


@pytest.mark.parametrize(
    ("train", "called"),
    [
        ("past/orders.csv", "orders"),
        ("log/*.parquet", "log"),
        ("part-*.parquet", "part"),
        ("-", "log"),
        ("postgresql://me:secret@host/shop?host=/tmp", "shop"),
    ],
)
def test_study_files_are_called_by_their_log(train, called):
    assert log_called(train) == called

"""Every public object has a line for a shell and a card for a notebook."""

import re
from html.parser import HTMLParser

import pytest

import unexposed as ux
from small import fitted
from unexposed.cards import Card, counted, html
from unexposed.data.clicks import Clicks, Ratings
from unexposed.data.ids import Ids
from unexposed.ranking.verdict import Verdict

HOSTILE = "<script>alert('x')</script>&"


def objects(world):
    """A public object of every kind that a log, a world or a training gives."""
    log, split = world.log(0), world.split(seed=0)
    ratings = Ratings(
        *(split.judged.users, split.judged.items, split.judged.relevant.astype("float32")),
        user_ids=log.user_ids,
        item_ids=log.item_ids,
    )
    found = (world, log, log.shown, split, split.judged, ratings, world.traffic(0.1, seed=0))
    model = fitted("mf", log, epochs=3)
    named = (ux.PROTOCOLS["catalogue"], ux.DATASETS["coat"], ux.make("ubo", dim=20))
    return [*found, *named, model, model.verdict, ux.Side(), log.user_ids]


class Reader(HTMLParser):
    """Collects tags and checks that they nest."""

    def __init__(self):
        super().__init__()
        self.tags, self.open, self.text = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.text += data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert not reader.open
    return reader


def test_every_public_object_is_one_short_line_without_arrays(small_world):
    for found in objects(small_world):
        line = repr(found)
        assert "\n" not in line, line
        assert "array(" not in line, line
        assert len(line) < 250 or isinstance(found, Verdict), line  # a whole sentence


def test_a_line_says_how_much_there_is(small_world):
    log = small_world.log(0)
    assert repr(log) == f"Clicks({len(log):,} clicks, 120 users, 60 items)"
    assert repr(fitted("mf", log, epochs=3)).startswith("Model(mf: 120 users, 60 items")
    assert repr(ux.make("mf", dim=8, epochs=3)) == "MF(dim=8, epochs=3)"
    assert counted(1, "click") == "1 click"
    assert repr(Ids.of("abcd")) == "Ids(4: 'a', 'b', 'c', …)"


def test_a_card_is_well_formed_and_takes_nothing_from_elsewhere(small_world):
    cards = [found for found in objects(small_world) if hasattr(found, "_repr_html_")]
    assert len(cards) == 12
    for found in cards:
        page = found._repr_html_()
        reader = read(page)
        assert set(reader.tags) <= set(
            "div strong table thead tbody tr th td svg polyline circle br small".split()
        )
        assert not re.search(r"https?:|src=|href=|url\(", page)


def test_ids_stay_text_on_a_card():
    ids = Ids.of([HOSTILE, "b"])
    clicks = Clicks.from_pairs([0, 1], [1, 0], user_ids=ids, item_ids=ids)
    reader = read(clicks._repr_html_())
    assert "script" not in reader.tags
    assert reader.text.count(HOSTILE) == 2
    assert "script" not in read(html(Card(HOSTILE, {HOSTILE: HOSTILE}, note=HOSTILE))).tags


def test_clicks_become_a_frame_of_raw_ids_and_back(small_world):
    log = small_world.log(0)
    frame = log.frame()
    assert frame.columns == ["user", "item", "clicks", "time"]
    assert frame["clicks"].sum() == log.counts.sum()
    assert frame["time"].dt.epoch("s").to_list() == log.times.tolist()
    assert log.frame("pandas").shape == frame.shape
    with pytest.raises(ux.InputError, match="no frames of 'panda'; did you mean 'pandas'"):
        log.frame("panda")

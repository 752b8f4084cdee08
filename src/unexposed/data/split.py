"""Split clicks into a part to train on and a part held out: at random, or by time."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from unexposed.cards import Card, HasCard
from unexposed.data.clicks import Clicks
from unexposed.data.labelled import Judgements
from unexposed.data.pairs import same_ids
from unexposed.errors import InputError, did_you_mean

Chosen = NDArray[np.bool_]  # which clicks are held out
Rule = Callable[[Clicks, str, int], Chosen]  # clicks, the text after the colon, seed


@dataclass(frozen=True, eq=False)
class Split(HasCard):
    """Clicks to train on, clicks that choose epoch and settings, and judgements for the test."""

    train: Clicks
    held_out: Clicks
    judged: Judgements

    def __post_init__(self) -> None:
        for part in (self.held_out, self.judged):
            if not same_ids(part, self.train):
                raise InputError("the parts of a split must know the same users and items")
        if self.train.contain(self.held_out.users, self.held_out.items).any():
            raise InputError("held-out clicks must not be among the training clicks")

    def card(self) -> Card:
        """A line on each part."""
        parts = {name: getattr(self, name) for name in ("train", "held_out", "judged")}
        return Card("Split", {name: repr(part) for name, part in parts.items()})


def split(clicks: Clicks, how: str, *, seed: int = 0) -> tuple[Clicks, Clicks]:
    """The clicks to train on and the clicks held out, by a rule such as `time:0.8`.

    `random:0.1` holds out a random tenth; `time:0.8` trains on the earliest 80 %; `last` holds out
    each user's last click, unless it is the only one; `date:2024-05-01` holds out the clicks from
    that date on (UTC). Every click is in one part, and both have some. A pair clicked several
    times is one click, at its last time. The seed draws what is random: the tenth, and the last of
    several clicks at the same time.

    The impressions of held-out clicks are left out of the training part: there they would be
    items shown and not clicked.
    """
    name, _, value = how.partition(":")
    if name not in SPLITS:
        raise InputError(f"no split {how!r}; {did_you_mean(name, SPLITS)}, as in {EXAMPLES}")
    held = SPLITS[name](clicks, value, seed)
    if held.all() or not held.any():
        raise InputError(
            f"the split {how!r} holds out {'all' if held.any() else 'none'} of "
            f"{len(clicks):,} clicks, and both parts need some: choose another"
        )
    train, held_out = clicks.pick(~held), clicks.pick(held)
    shown = clicks.shown
    if shown is not None:
        shown = shown.pick(~held_out.contain(shown.users, shown.items))
    return replace(train, shown=shown), held_out


def _random(clicks: Clicks, value: str, seed: int) -> Chosen:
    fraction = _share(value, "random")
    _, held_out = clicks.hold_out(fraction=fraction, seed=seed)
    return held_out.contain(clicks.users, clicks.items)


def _by_time(clicks: Clicks, value: str, seed: int) -> Chosen:
    """Hold out the latest clicks.

    Clicks of the same second stay together: the cut lies where the time changes, as near to the
    share as it can.
    """
    del seed
    share, times = _share(value, "time"), _times(clicks)
    ordered = np.sort(times)
    cuts = np.flatnonzero(ordered[1:] > ordered[:-1]) + 1  # clicks before each change of time
    if len(cuts) == 0:
        raise InputError("all clicks have the same time: no split by time parts them")
    cut = cuts[np.argmin(np.abs(cuts - share * len(ordered)))]
    return times >= ordered[cut]


def _last(clicks: Clicks, value: str, seed: int) -> Chosen:
    """Hold out the last click of each user with at least two; the lot decides between equals."""
    if value:
        raise InputError(f"the split 'last' takes no value, got {value!r}")
    times = _times(clicks)
    counts = clicks.user_counts[clicks.user_counts > 0]
    first = clicks.user_start[:-1][clicks.user_counts > 0]
    latest = times == np.repeat(np.maximum.reduceat(times, first), counts)
    lot = np.where(latest, np.random.default_rng(seed).permutation(len(clicks)), -1)
    drawn = lot == np.repeat(np.maximum.reduceat(lot, first), counts)
    return drawn & np.repeat(counts > 1, counts)


def _by_date(clicks: Clicks, value: str, seed: int) -> Chosen:
    del seed
    try:
        day = datetime.fromisoformat(value)
    except ValueError as error:
        raise InputError(
            f"a split by date needs a date such as date:2024-05-01, got {value!r}"
        ) from error
    times = _times(clicks)
    held = times >= (day if day.tzinfo else day.replace(tzinfo=UTC)).timestamp()
    if held.all() or not held.any():
        first, last = _day(times.min()), _day(times.max())
        side = "before" if held.any() else "after"
        raise InputError(
            f"no click lies {side} {value}: the log runs from {first} to {last}, "
            "so choose a date between them"
        )
    return held


SPLITS: dict[str, Rule] = {"random": _random, "time": _by_time, "last": _last, "date": _by_date}
EXAMPLES = "random:0.1, time:0.8, last or date:2024-05-01"


def _share(value: str, name: str) -> float:
    try:
        share = float(value)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise InputError(
            f"the split {name!r} needs a share between 0 and 1, as in {name}:0.5, got {value!r}"
        )
    return share


def _times(clicks: Clicks) -> NDArray[np.int64]:
    if clicks.times is None:
        raise InputError("the log has no times: name the column with time= (--time)")
    if len(clicks) == 0:
        raise InputError("a log without clicks cannot be split")
    return clicks.times


def _day(seconds: int) -> str:
    return str(np.datetime64(int(seconds), "s").astype("datetime64[D]"))

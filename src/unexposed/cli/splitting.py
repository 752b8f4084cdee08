"""What a split made of a log, said in one line."""

from typing import TYPE_CHECKING

from unexposed.cli.talking import say

if TYPE_CHECKING:
    from unexposed.data.clicks import Clicks
    from unexposed.data.labelled import Judgements
    from unexposed.evaluation.protocols import Protocol


def part(clicks: "Clicks", how: str, *, seed: int) -> "tuple[Clicks, Clicks]":
    """Clicks to train on and clicks that choose the epoch."""
    from unexposed.data.split import split

    train, held_out = split(clicks, how, seed=seed)
    say(f"{how}: {len(train):,} clicks to train on, {len(held_out):,} held out")
    return train, held_out


def part_among_ranks(clicks: "Clicks", how: str, *, seed: int) -> "tuple[Clicks, Clicks]":
    """The same where several ranks hold the clicks: only chance parts them as one process does."""
    from unexposed.errors import InputError

    name, _, value = how.partition(":")
    try:
        fraction = float(value)
    except ValueError:
        fraction = 0.0
    if name != "random" or not 0 < fraction < 1:
        raise InputError(
            f"several ranks split a log by random:0.1 and the like, got {how!r}: choose that, or "
            "train in one process"
        )
    train, held_out = clicks.hold_out(fraction=fraction, seed=seed)
    say(f"{how}: {train.n_clicks:,} clicks to train on, {held_out.n_clicks:,} held out")
    return train, held_out


def judged_by_later(clicks: "Clicks", how: str, by: "Protocol") -> "tuple[Clicks, Judgements]":
    """Clicks to learn from and later ones as judgements."""
    from unexposed.evaluation import compare

    earlier, judged = compare.judged_by_later(clicks, how, by)
    users = set(judged.users.tolist())
    new = sum(earlier.user_counts[user] == 0 for user in users)
    say(
        f"{how}: {len(earlier):,} clicks to learn from; {len(judged):,} later ones judge, by "
        f"{len(users):,} users" + (f", {new:,} of them without an earlier click" if new else "")
    )
    return earlier, judged

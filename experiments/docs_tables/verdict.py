"""Differences that carry the verdict: with intervals, with tests, and as a share of an oracle's."""

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from docs_tables.stored import Floats, Place
from unexposed.cards import NONE, number, signed
from unexposed.evaluation.significance import SIGNIFICANCE, bootstrap_interval, holm, paired_test
from unexposed.report.tables import Cell, Table, cells, code, p_value

QUESTIONS = {  # → arm less arm, on data sets and in worlds
    "UBO less UMF": (("ubo", "umf"), ("gated-paper-held", "umf")),
    "UBO, learned less frozen": (("ubo", "ubo-frozen"), ("gated-paper-held", "gated-frozen")),
    "guided by dislikes, learned less frozen": (
        ("ubo-items", "items-frozen"),
        ("items-disliked", "items-frozen-disliked"),
    ),
    "UMF less MF": (("umf", "mf"),),
    "oracle less MF": (("items-known-disliked", "mf"),),
}

Key = TypeVar("Key", bound=Hashable)
FROZEN, KNOWN = "items-frozen-disliked", "items-known-disliked"
RESAMPLES = 2000


def verdict(asked: Sequence[Place]) -> Table:
    """Each question on each data set and world: difference, 95 % interval, p."""
    found: dict[tuple[str, str], Floats] = {}
    for place in asked:
        for question, pairs in QUESTIONS.items():
            for arm, base in pairs:
                if (less := place.less(arm, base)) is not None:
                    found[place.title, question] = less
    shown, order = tested_together(found), list(QUESTIONS)
    rows = [
        cells(
            place.short,
            *(shown.get(at, NONE) for at in ((place.title, question) for question in order)),
        )
        for place in asked
    ]
    note = (
        "Difference in DCG@3 [95 % interval over users] and p (sign-flip test over users, Holm "
        f"over the {len(found)} cells); bold: p < .05 and the same sign with every seed. Data "
        "sets: tuned, a tenth of the clicks held out, judged by random traffic. Worlds: by true "
        "relevance, one setting for every row. Arms guided by dislikes learn one exposure an "
        "item, from ratings below the threshold too; the oracle knows each item's exposure."
    )
    return Table("verdict", "Verdict", ["", *order], rows, [note])


def differences(place: Place, asked: Mapping[str, tuple[str, str]]) -> Table:
    """Arm less arm in one place: difference, 95 % interval, p."""
    found = {q: less for q, pair in asked.items() if (less := place.less(*pair)) is not None}
    rows = [cells(question, cell) for question, cell in tested_together(found).items()]
    note = (
        "Difference in DCG@3 [95 % interval over users] and p (sign-flip test over users, Holm); "
        "bold: p < .05 and the same sign with every seed."
    )
    return Table("differences", "Differences", ["", place.short], rows, [note])


def smallest(place: Place, arms: Sequence[str]) -> float:
    """The difference of two of these arms that would pass chance, p < .05 alone: 1.96 SE, median.

    SE is the standard error over users of the mean over seeds.
    """
    found = [
        1.96 * less.mean(axis=0).std(ddof=1) / np.sqrt(less.shape[1])
        for at, arm in enumerate(arms)
        for base in arms[:at]
        if (less := place.less(arm, base)) is not None
    ]
    return float(np.median(found))


def tested_together(found: Mapping[Key, Floats]) -> dict[Key, Cell]:
    """Differences with their intervals and p, by the sign-flip test over users and Holm."""
    tests = {f"{at}": paired_test(less, 0 * less, seed=0).p_value for at, less in found.items()}
    adjusted = holm(tests)
    return {at: _tested(less, adjusted[f"{at}"]) for at, less in found.items()}


def _tested(less: Floats, p: float) -> Cell:
    said = p_value(p)
    said = said if said.startswith("<") else f"= {said}"
    return Cell(f"{difference(less)}, p {said}", bold=p < SIGNIFICANCE and _agree(less))


def _agree(less: Floats) -> bool:
    """Whether every seed has the sign of the mean: users cannot show a lucky training."""
    by_seed = less.mean(axis=1)
    return bool((by_seed > 0).all() or (by_seed < 0).all())


def difference(less: Floats) -> str:
    """Mean and 95 % interval over users."""
    low, high = bootstrap_interval(less, seed=0)
    return f"{signed(float(less.mean()))} [{number(low)}, {number(high)}]"


def exposure(asked: Sequence[Place]) -> Table:
    """DCG@3 of true relevance less MF's, and the PCC, of each way to learn the exposure."""
    heads = ["row", *(part for place in asked for part in (place.short, "PCC"))]
    rows = []
    for arm, given in _arms(asked).items():
        row = [Cell(arm, code=True, aside=given)]
        for place in asked:
            less = place.less(arm, "mf")
            shown = NONE if less is None else number(_mean(place, arm)) if arm == "mf" else None
            row += cells(shown or difference(less), number(place.pcc.get(arm)))
        rows.append(row)
    note = (
        "DCG@3 of true relevance less that of MF [95 % interval over users]; MF's own row has its "
        "DCG@3. PCC: correlation of the model's exposure with the true one. In round brackets: "
        "what a row is given that clicks do not tell."
    )
    return Table("exposure", "Ways to learn the exposure", heads, rows, [note])


def oracles(asked: Sequence[Place]) -> Table:
    """What knowing the exposure gains over MF, in each world."""
    arms = [arm for arm, given in _arms(asked).items() if given == "oracle"]
    rows = []
    for arm in arms:
        gains = (place.less(arm, "mf") for place in asked)
        rows.append(cells(code(arm), *(NONE if g is None else difference(g) for g in gains)))
    note = (
        f"DCG@3 of true relevance less that of MF [95 % interval over users]. `{KNOWN}` knows one "
        "exposure an item and has its epoch chosen by dislikes; the other rows have it chosen by "
        "held-out clicks."
    )
    heads = ["given", *(place.short for place in asked)]
    return Table("oracles", "What knowing the exposure gains", heads, rows, [note])


def share(asked: Sequence[Place]) -> Table:
    """The part of the oracle's gain over the frozen exposure that each guided arm reaches."""
    arms = [
        arm
        for arm, given in _arms(asked).items()
        if given.startswith("given") and arm not in (FROZEN, KNOWN)
    ]
    rows = [cells(code(arm), *(_share(place, arm) for place in asked)) for arm in arms]
    gain = [place.less(KNOWN, FROZEN) for place in asked]
    room = [NONE if less is None else difference(less) for less in gain]
    rows.append(cells("the oracle's gain", *room))
    note = (
        f"(row − `{FROZEN}`) / (`{KNOWN}` − `{FROZEN}`) [95 % interval over users], DCG@3 of true "
        "relevance; last: what the division is by."
    )
    heads = ["share of the oracle's gain", *(place.short for place in asked)]
    return Table("oracle-share", "Share of the oracle's gain", heads, rows, [note])


def _share(place: Place, arm: str) -> str:
    less, gain = place.less(arm, FROZEN), place.less(KNOWN, FROZEN)
    if less is None or gain is None:
        return NONE
    low, high = ratio_interval(less, gain)
    return f"{percent(less.mean() / gain.mean())} [{percent(low)}, {percent(high)}]"


def ratio_interval(above: Floats, below: Floats) -> tuple[float, float]:
    """95 % interval of the ratio of two means, each (seeds, users), by resampling users."""
    drawn = np.random.default_rng(0).integers(above.shape[1], size=(RESAMPLES, above.shape[1]))
    above, below = (values.mean(axis=0) for values in (above, below))
    ratios = above[drawn].mean(axis=1) / below[drawn].mean(axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)


def percent(value: float) -> str:
    return f"{100 * value:.0f} %".replace("-", "−")


def clicks_and_truth(asked: Sequence[Place], arms: Mapping[str, str]) -> Table:
    """What held-out clicks say of some arms, beside the truth."""
    rows = []
    for place in asked:
        for arm, title in arms.items():
            if arm in place.values and arm in place.held_out:
                less = place.less(arm, "mf")
                true = NONE if arm == "mf" or less is None else difference(less)
                held_out = number(place.held_out[arm])
                rows.append(cells(place.short, title, held_out, f"{place.epoch[arm]:.0f}", true))
    heads = ["world", "", "held-out clicks", "their best epoch", "true DCG@3 less MF's"]
    note = (
        "Held-out clicks: the criterion that chooses the epoch, at that epoch. Mean over seeds; "
        "brackets: 95 % interval over users."
    )
    return Table("clicks", "What clicks see", heads, rows, [note], words=2)


def _arms(asked: Sequence[Place]) -> dict[str, str]:
    """The arms that any place has, in order, each with what it is given."""
    return {arm: place.given[arm] for place in asked for arm in place.given if arm in place.values}


def _mean(place: Place, arm: str) -> float:
    return float(place.values[arm].mean())

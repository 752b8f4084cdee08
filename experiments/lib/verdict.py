"""Tables of differences between arms: with intervals, with tests, as a share of an oracle's."""

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np

import stored
from markdown import p_value
from stored import Difference, Place, Terms, less
from unexposed.cards import NONE, number, signed
from unexposed.evaluation.significance import SIGNIFICANCE, holm
from unexposed.report.tables import Cell, Table, cells, code

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

IMPRESSIONS = {  # arm → the same method without impressions
    "mf-shown": "mf",
    "bpr-shown": "bpr",
    "umf-shown": "umf",
    "umf-theta-shown": "umf-theta",
    "umf-true": "umf",
}
TRAFFIC = {
    "mf-traffic-0_5": "mf",
    "mf-traffic-2": "mf",
    "mf-traffic-10": "mf",
    "umf-traffic-0_5": "umf",
    "umf-traffic-2": "umf",
    "umf-traffic-10": "umf",
    "mf-epoch-2": "mf",
    "ubo-guide-2": "ubo-frozen",
    "ubo-guide-10": "ubo-frozen",
    "mf-shown-traffic-2": "mf-shown",
}
COAT = {arm: base for arm, base in TRAFFIC.items() if not arm.startswith("mf-shown")} | {
    "mf-features": "mf"
}
ORACLE = "umf-true"

Key = TypeVar("Key", bound=Hashable)
FROZEN, KNOWN = "items-frozen-disliked", "items-known-disliked"


def verdict(asked: Sequence[Place]) -> Table:
    """Each question on each data set and world: difference, 95 % interval, p."""
    found: dict[tuple[str, str], Difference] = {}
    for place in asked:
        for question, pairs in QUESTIONS.items():
            for arm, base in pairs:
                if (one := less(place, arm, base)) is not None:
                    found[place.title, question] = one
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
    found = {q: one for q, pair in asked.items() if (one := less(place, *pair)) is not None}
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
        for less in [place.values[arm] - place.values[base]]
    ]
    return float(np.median(found))


def tested_together(found: Mapping[Key, Difference]) -> dict[Key, Cell]:
    """Differences with their intervals and p, by the sign-flip test over users and Holm."""
    adjusted = holm({f"{at}": one.p for at, one in found.items()})
    return {at: _tested(one, adjusted[f"{at}"]) for at, one in found.items()}


def _tested(one: Difference, p: float) -> Cell:
    said = p_value(p)
    said = said if said.startswith("<") else f"= {said}"
    return Cell(f"{difference(one)}, p {said}", bold=p < SIGNIFICANCE and one.agree)


def difference(one: Difference) -> str:
    """Mean and 95 % interval over users."""
    return f"{signed(one.mean)} [{number(one.low)}, {number(one.high)}]"


def exposure(asked: Sequence[Place]) -> Table:
    """DCG@3 of true relevance less MF's, and the PCC, of each way to learn the exposure."""
    heads = ["row", *(part for place in asked for part in (place.short, "PCC"))]
    rows = []
    for arm, given in _arms(asked).items():
        row = [Cell(arm, code=True, aside=given)]
        for place in asked:
            one = less(place, arm, "mf")
            shown = NONE if one is None else difference(one)
            if arm == "mf":
                shown = number(place.means[arm])
            row += cells(shown, number(place.pcc.get(arm)))
        rows.append(row)
    note = (
        "DCG@3 of true relevance less that of MF [95 % interval over users]; MF's own row has its "
        "DCG@3. PCC: correlation of the model's exposure with the true one. In round brackets: "
        "what a row is given that clicks do not tell."
    )
    return Table("exposure", "Ways to learn the exposure", heads, rows, [note])


def share(asked: Sequence[Place]) -> Table:
    """The part of the oracle's gain over the frozen exposure that each guided arm reaches."""
    arms = [
        arm
        for arm, given in _arms(asked).items()
        if given.startswith("given") and arm not in (FROZEN, KNOWN)
    ]
    rows = [cells(code(arm), *(_share(place, arm) for place in asked)) for arm in arms]
    gain = [less(place, KNOWN, FROZEN) for place in asked]
    room = [NONE if one is None else difference(one) for one in gain]
    rows.append(cells("the oracle's gain", *room))
    note = (
        f"(row − `{FROZEN}`) / (`{KNOWN}` − `{FROZEN}`) [95 % interval over users], DCG@3 of true "
        "relevance; last: what the division is by."
    )
    heads = ["share of the oracle's gain", *(place.short for place in asked)]
    return Table("oracle-share", "Share of the oracle's gain", heads, rows, [note])


def _share(place: Place, arm: str) -> str:
    at = {name: [(place, name)] for name in (arm, FROZEN, KNOWN)}
    found = stored.share((at[arm], at[FROZEN]), (at[KNOWN], at[FROZEN]))
    if found is None:
        return NONE
    ratio, low, high = found
    return f"{percent(ratio)} [{percent(low)}, {percent(high)}]"


def percent(value: float) -> str:
    return f"{100 * value:.0f} %".replace("-", "−")


def clicks_and_truth(asked: Sequence[Place], arms: Mapping[str, str]) -> Table:
    """What held-out clicks say of some arms, beside the truth."""
    rows = []
    for place in asked:
        for arm, title in arms.items():
            if arm in place.means and arm in place.held_out:
                one = less(place, arm, "mf")
                true = NONE if arm == "mf" or one is None else difference(one)
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
    return {arm: place.given[arm] for place in asked for arm in place.given if arm in place.means}


def judged(first: Place, second: Place, heads: tuple[str, str, str]) -> Table:
    """DCG@3 of each arm that both choices have: second less first, over users."""
    found = {arm: stored.difference([(second, arm)], [(first, arm)]) for arm in first.means}
    tested = tested_together({arm: one for arm, one in found.items() if one is not None})
    rows = [
        cells(
            Cell(arm, code=True, aside=first.given.get(arm, "")),
            number(first.means[arm]),
            number(second.means[arm]),
            tested[arm],
        )
        for arm in tested
    ]
    note = (
        "Mean over seeds; in brackets: 95 % interval over users; p: sign-flip test over users, "
        "Holm; bold: p < .05 and the same sign with every seed."
    )
    return Table("choice-judged", "Judged", [*heads, "difference"], rows, [note], words=1)


def worth(asked: Sequence[Place], pairs: Mapping[str, str]) -> Table:
    """Each arm less its base: in all shops together, with a test, and in each of them."""
    made = {arm: _together(asked, arm, base) for arm, base in pairs.items()}
    found = {arm: less for arm, less in made.items() if less is not None}
    rows = []
    for arm, tested in tested_together(found).items():
        base = pairs[arm]
        own = [place.means[arm] - place.means[base] for place in asked]
        rows.append(
            [
                Cell(arm, code=True, aside=asked[0].given.get(arm, "")),
                Cell(base, code=True),
                tested,
                *cells(*map(signed, own)),
            ]
        )
    note = (
        "Difference in DCG@3 [95 % interval over users] and p "
        "(sign-flip test over users, Holm); bold: p < .05 and the same sign with every seed."
    )
    heads = ["row", "less", "all shops", *(f"shop {n + 1}" for n in range(len(asked)))]
    if len(asked) == 1:
        heads = ["row", "less", "difference"]
        rows = [row[:3] for row in rows]
    return Table("worth", "What it is worth", heads, rows, [note])


def levels(asked: Sequence[Place]) -> Table:
    """DCG@3 of true relevance of every arm in every shop."""
    arms = dict.fromkeys(arm for place in asked for arm in place.means)
    given = {arm: place.given.get(arm, "") for place in asked for arm in place.means}
    rows = [
        [
            Cell(arm, code=True, aside=given[arm]),
            *cells(*(number(place.means.get(arm)) for place in asked)),
        ]
        for arm in arms
    ]
    note = "DCG@3 of true relevance, mean of the seeds."
    heads = ["row", *(f"shop {n + 1}" for n in range(len(asked)))]
    return Table("levels", "Every row", heads, rows, [note])


def shares(asked: Sequence[Place]) -> str:
    """The part of the oracle's gain over UMF that each row with impressions reaches, in words."""
    room = _together(asked, ORACLE, "umf")
    if room is None:
        return "Results are missing."
    said = []
    for arm in ("mf-shown", "bpr-shown", "umf-shown", "umf-theta-shown"):
        whole = _pooled(asked, ORACLE, "umf")
        if (found := stored.share(_pooled(asked, arm, "umf"), whole)) is not None:
            ratio, low, high = map(percent, found)
            said.append(f"`{arm}` {ratio} [{low}, {high}]")
    most = signed(room.mean)
    return f"Of what the true exposure gains over `umf` ({most}), rows reach: {', '.join(said)}."


def _together(asked: Sequence[Place], arm: str, base: str) -> Difference | None:
    """Arm minus base, over the users of all shops."""
    return stored.difference(*_pooled(asked, arm, base))


def _pooled(asked: Sequence[Place], arm: str, base: str) -> tuple[Terms, Terms]:
    return [(place, arm) for place in asked], [(place, base) for place in asked]

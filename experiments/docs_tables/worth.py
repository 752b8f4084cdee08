"""What impressions and random traffic gain, each row over the same method without them."""

from collections.abc import Mapping, Sequence

from docs_tables import stored
from docs_tables.stored import Difference, Place, Terms
from docs_tables.verdict import percent, tested_together
from unexposed.cards import number, signed
from unexposed.report.tables import Cell, Table, cells

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


def worth(asked: Sequence[Place], pairs: Mapping[str, str], name: str, title: str) -> Table:
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
    return Table(name, title, heads, rows, [note])


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

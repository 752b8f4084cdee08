"""Tables of `unexposed evaluate`: by exposure, and of off-policy estimates."""

import math
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from unexposed.cards import NONE, number, signed
from unexposed.ranking.verdict import RIVAL, RIVALS


def beside_table(document: dict[str, Any], rival: str = RIVAL) -> Table:
    """The model and a rival by every metric, with the difference and its interval."""
    caption = (
        f"difference to {RIVALS[rival]} over the same users, 95 % interval; chance: p > .05 "
        "(sign-flip test)"
    )
    if len(document["beside"]) == 1 and document["method"] not in RIVALS:
        caption += "; training mf takes longer here: unexposed compare shows it and others"
    table = Table(box=SIMPLE_HEAD, pad_edge=False, caption=caption, caption_justify="left")
    table.add_column(f"beside {rival}")
    for name in (document["method"], rival, "difference", "95 % interval", "finding"):
        table.add_column(name, justify="right")
    for metric, found in document["beside"][rival].items():
        table.add_row(
            metric,
            number(found["mean"]),
            number(found[rival]),
            signed(found["difference"]),
            " – ".join(map(number, found["ci95"])),
            found["finding"],
        )
    return table


def exposure_table(document: dict[str, Any]) -> Table:
    """Every metric on each third of the relevant pairs, from seldom to often shown."""
    caption = "thirds of the relevant pairs, by how likely the user was shown the item"
    table = Table(box=SIMPLE_HEAD, pad_edge=False, caption=caption, caption_justify="left")
    table.add_column("by exposure")
    parts = document["by_exposure"]
    for name, part in parts.items():
        limits = NONE if part["exposure"] is None else " – ".join(map(number, part["exposure"]))
        table.add_column(f"{name} shown ({limits})", justify="right")
    for metric in document["metrics"]:
        table.add_row(metric, *(number(part["metrics"][metric]) for part in parts.values()))
    return table


def off_policy_table(document: dict[str, Any]) -> Table:
    """The click rate of each top-k policy by every estimator, and how much of the log counts."""
    rate = document["logged_rate"]
    caption = (
        f"{document['protocol']}: click rate ± standard error if each of "
        f"{document['impressions']:,} impressions had shown one of the top k; as logged "
        f"{_spread(rate)}\nclipped: weights of at most {document['clip']:g}, so biased downwards; "
        "a mean weight far from 1 is a warning"
    )
    if hidden := document["clicks_trained_on"]:
        caption += (
            f"\n{hidden:,} of {document['clicks']:,} clicks are on pairs that the model was "
            "trained on, which its lists leave out"
        )
    if strangers := document["unknown_users"]:
        caption += f"\nleft out: {strangers:,} users that the model does not know"
    table = Table(box=SIMPLE_HEAD, pad_edge=False, caption=caption, caption_justify="left")
    table.add_column(document["method"])
    names = list(dict.fromkeys(text.partition("@")[0] for text in document["metrics"]))
    for name in (*names, "effective sample", "mean weight", "largest", "clipped"):
        table.add_column(name, justify="right")
    for k, facts in document["weights"].items():
        estimates = (document["metrics"].get(f"{name}@{k}") for name in names)
        table.add_row(
            f"top {k}",
            *(NONE if one is None else _spread(one) for one in estimates),
            f"{facts['effective_sample']:,.0f}",
            f"{facts['mean_weight']:.2f}",
            f"{facts['largest_weight']:,.1f}",
            f"{facts['clipped_share']:.1%}",
        )
    return table


def _spread(estimate: dict[str, Any]) -> str:
    if not math.isfinite(estimate["mean"]):  # no impression counts
        return NONE
    return f"{estimate['mean']:.4f} ± {estimate['se']:.4f}"

"""The figures of a model's page, from the plain data of its portrait."""

from typing import Any

from unexposed.report.drawing import Figure, draw, line_style
from unexposed.report.look import BLUE, ORANGE, VERMILLION, Look
from unexposed.training.loop import peak

# thirds of the users by their clicks
ACTIVITY = (
    Look("users with few clicks", BLUE, "s", (1, 2)),
    Look("users with some clicks", ORANGE, "^", (4, 2)),
    Look("users with many clicks", VERMILLION, "o", ()),
)


def long_tail(log: dict[str, Any]) -> Figure:
    """Clicks of items and of users, by rank."""
    panels = [
        draw("tail-items", "Clicks of an item", _curve, log["item_curve"], "item, by clicks"),
        draw("tail-users", "Clicks of a user", _curve, log["user_curve"], "user, by clicks"),
    ]
    caption = "From the most clicked item and the most active user on. Both axes are logarithmic."
    return Figure("tail", "The long tail", caption, panels, columns=2)


def _curve(axes: Any, curve: dict[str, list[int]], label: str) -> None:
    kept = [at for at, clicks in enumerate(curve["clicks"]) if clicks > 0]
    axes.plot([curve["rank"][at] for at in kept], [curve["clicks"][at] for at in kept], color=BLUE)
    _logarithmic(axes)
    axes.set_xlabel(label)
    axes.set_ylabel("clicks")


def _logarithmic(axes: Any, *, both: bool = True) -> None:
    scales = [(axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)]
    for axis, scale in scales if both else scales[:1]:
        scale("log")
        axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
        axis.set_minor_formatter(lambda *_: "")


def training(facts: dict[str, Any]) -> Figure | None:
    """Loss and held-out quality of every epoch, with the best epoch marked."""
    if not facts.get("losses"):
        return None
    best = facts["best_epoch"]
    panels = [
        draw(f"training-{name}", title, _epochs, facts[key], best, label)
        for name, key, title, label in (
            ("loss", "losses", "Loss", "mean loss of an epoch"),
            ("held-out", "held_out", "Quality on held-out clicks", "SNIPS estimate of DCG"),
        )
        if facts.get(key)
    ]
    caption = f"The dashed line marks epoch {best}, the best one."
    if highest := peak(facts):
        caption += (
            " The mean held-out quality over several epochs up to it chooses, because a single "
            f"epoch is noisy: by itself epoch {highest} was highest."
        )
    return Figure("training", "The training", caption, panels, columns=2)


def _epochs(axes: Any, values: list[float], best: int, label: str) -> None:
    axes.plot(range(1, len(values) + 1), values, color=BLUE)
    axes.axvline(best, color=VERMILLION, linewidth=1.4, linestyle=(0, (4, 2)))
    axes.set_xlabel("epoch")
    axes.set_ylabel(label)


def relations(data: dict[str, Any]) -> Figure | None:
    """Exposure and relevance by clicks of the item and activity of the user."""
    panels = []
    for what, title in (
        ("exposure", "Exposure under this model"),
        ("relevance", "Relevance under this model"),
    ):
        if what == "exposure" and data["exposure_is_assumed"]:
            continue  # it follows popularity by assumption: drawn, it would look like a finding
        groups = [
            (look, [row for row in group["rows"] if row[what] is not None and row["clicks"] > 0])
            for look, group in zip(ACTIVITY, data["by_popularity"], strict=False)
        ]
        if any(rows for _, rows in groups):
            panels.append(draw(f"relation-{what}", title, _lines, groups, what))
    if not panels:
        return None
    title = "What it assigns to popular and rare items"
    caption = (
        "Exposure is how likely an item was shown, relevance how likely a click is, once shown: "
        f"means over {data['pairs']:,} sampled pairs without a click. They describe the model; "
        "clicks alone cannot say how often an item was shown."
    )
    return Figure("relations", title, caption, panels, list(ACTIVITY), columns=2)


def _lines(axes: Any, groups: list[tuple[Look, list[dict[str, Any]]]], what: str) -> None:
    for look, rows in groups:
        x, y = [row["clicks"] for row in rows], [row[what] for row in rows]
        axes.plot(x, y, **line_style(look))
    _logarithmic(axes, both=False)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("clicks of the item")
    axes.set_ylabel({"exposure": "exposure m", "relevance": "relevance p"}[what])

"""The figures of a model's page, from the plain data of its portrait."""

from typing import Any

from unexposed.report.drawing import Figure, draw
from unexposed.report.look import BLUE, INK, ORANGE, VERMILLION, Look

# users by how much they clicked: one colour, marker and line each
ACTIVITY = (
    Look("users of few clicks", BLUE, "s", (1, 2)),
    Look("users of some clicks", ORANGE, "^", (4, 2)),
    Look("users of many clicks", VERMILLION, "o", ()),
)


def long_tail(log: dict[str, Any]) -> Figure:
    """How the clicks fall on items and on users."""
    panels = [
        draw("tail-items", "Clicks of an item", _curve, log["item_curve"], "item, by clicks"),
        draw("tail-users", "Clicks of a user", _curve, log["user_curve"], "user, by clicks"),
    ]
    caption = "From the most clicked item, and the most active user, on. Both axes are logarithmic."
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
    """The loss and the held-out quality of every epoch, and which was kept."""
    if not facts.get("losses"):
        return None
    best = facts["best_epoch"]
    panels = [
        draw("training-loss", "Loss", _epochs, facts["losses"], best, "mean loss of an epoch")
    ]
    if facts.get("held_out"):
        panels.append(
            draw(
                "training-held-out",
                "Quality on held-out clicks",
                _epochs,
                facts["held_out"],
                best,
                "SNIPS estimate of DCG",
            )
        )
    caption = f"The upright line is epoch {best}, which was kept."
    return Figure("training", "The training", caption, panels, columns=2)


def _epochs(axes: Any, values: list[float], best: int, label: str) -> None:
    axes.plot(range(1, len(values) + 1), values, color=BLUE)
    axes.axvline(best, color=VERMILLION, linewidth=1.4, linestyle=(0, (4, 2)))
    axes.set_xlabel("epoch")
    axes.set_ylabel(label)


def relations(data: dict[str, Any]) -> Figure | None:
    """Exposure and relevance against the clicks of an item, by the activity of the user."""
    panels = []
    for what, title in (
        ("exposure", "How likely an item was shown"),
        ("relevance", "How likely a click is, once shown"),
    ):
        groups = [
            (look, [row for row in group["rows"] if row[what] is not None and row["clicks"] > 0])
            for look, group in zip(ACTIVITY, data["by_popularity"], strict=False)
        ]
        if any(rows for _, rows in groups):
            panels.append(draw(f"relation-{what}", title, _lines, groups, what))
    if data["never_shown_histogram"]:
        panels.append(
            draw(
                "never-shown",
                "Pairs without a click",
                _histogram,
                data["never_shown_histogram"],
            )
        )
    if not panels:
        return None
    caption = (
        f"Means over {data['pairs']:,} sampled pairs without a click. The last panel shows the "
        "chance, given that there was no click, that the item was never shown: (1 − m) / (1 − m·p)."
        if data["never_shown_histogram"]
        else f"Means over {data['pairs']:,} sampled pairs without a click."
    )
    return Figure(
        "relations",
        "Exposure, relevance and popularity",
        caption,
        panels,
        list(ACTIVITY),
        columns=2 if len(panels) % 3 else 3,
    )


def _lines(axes: Any, groups: list[tuple[Look, list[dict[str, Any]]]], what: str) -> None:
    for look, rows in groups:
        axes.plot(
            [row["clicks"] for row in rows],
            [row[what] for row in rows],
            color=look.colour,
            marker=look.marker,
            linestyle=(0, look.dashes) if look.dashes else "-",
        )
    _logarithmic(axes, both=False)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("clicks of the item")
    axes.set_ylabel({"exposure": "exposure m", "relevance": "relevance p"}[what])


def _histogram(axes: Any, data: dict[str, list[float]]) -> None:
    edges = data["edges"]
    axes.bar(
        edges[:-1], data["share"], width=edges[1] - edges[0], align="edge", color=BLUE, alpha=0.6
    )
    axes.set_xlim(0, 1)
    axes.set_xlabel("chance that it was never shown")
    axes.set_ylabel("share of the pairs")


def strata(lists: dict[str, Any]) -> Figure:
    """Where clicks, the popular list and the model's lists fall: head, middle or tail."""
    shares = {
        "clicks": lists["log_strata"],
        "popular list": lists["popular"]["strata"],
        "this model": lists["model"]["strata"],
    }
    panel = draw("strata-shares", "Share by popularity", _stacked, shares, height=2.3)
    caption = (
        "Head, middle and tail items hold about a third of the clicks each. Lists of "
        f"{lists['k']} for {lists['users']:,} sampled users."
    )
    return Figure("strata", "Where clicks and lists fall", caption, [panel], columns=2)


def _stacked(axes: Any, shares: dict[str, dict[str, float | None]]) -> None:
    for at, parts in enumerate(shares.values()):
        left = 0.0
        for (name, share), colour in zip(parts.items(), (BLUE, ORANGE, VERMILLION), strict=True):
            width = share or 0.0
            axes.barh(at, width, left=left, color=colour, alpha=0.6, height=0.62)
            if width > 0.12:
                axes.text(
                    left + width / 2, at, f"{name} {width:.0%}", ha="center", va="center", color=INK
                )
            left += width
    axes.set_yticks(range(len(shares)), list(shares))
    axes.set_ylim(len(shares) - 0.5, -0.5)
    axes.set_xlim(0, 1)
    axes.set_xlabel("share")
    axes.grid(visible=False, axis="y")

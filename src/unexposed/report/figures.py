"""The figures of the experiments' report, from the plain data of its summary."""

import textwrap
from typing import Any

import numpy as np

from unexposed.report.drawing import Figure, draw, line_style
from unexposed.report.look import INK, Look, Looks
from unexposed.report.summary import FEWEST_CLICKS
from unexposed.report.tables import shown

Panels = list[dict[str, Any]]
Arms = list[dict[str, Any]]


def ablation(panels: Panels, looks: Looks, *, metric: str, base: str) -> Figure:
    """The paired difference of each strategy from the usual one."""
    label = f"{shown(metric)} − {base}'s"
    drawn = [
        draw(
            f"ablation-{panel['experiment']}",
            f"{panel['title']}: difference from {base}",
            _differences,
            *(panel["arms"], looks, label),
        )
        for panel in panels
    ]
    caption = (
        f"Each user's value less {base}'s on the same user, with the 95 % interval of the mean: "
        "an interval without zero is a difference."
    )
    return Figure("ablation", "How the exposure is learned (RQ2)", caption, drawn, columns=2)


def _differences(axes: Any, arms: Arms, looks: Looks, label: str) -> None:
    others = [arm for arm in arms if arm["changed"]]
    for at, arm in enumerate(others):
        look = looks[arm["arm"]]
        axes.plot(arm["difference_ci95"], [at, at], color=look.colour, linewidth=2.4)
        axes.plot(arm["difference"], at, look.marker, color=look.colour, markersize=7)
    axes.axvline(0, color=INK, linewidth=1)
    names = [textwrap.fill(looks[arm["arm"]].title, 16) for arm in others]
    axes.set_yticks(range(len(others)), names)
    axes.set_ylim(len(others) - 0.5, -0.5)  # the first on top
    axes.set_xlabel(label)
    axes.locator_params(axis="x", nbins=4)
    axes.grid(visible=False, axis="y")


def powers(panels: Panels, looks: Looks, *, metric: str) -> Figure:
    """Every method that learns as exposure becomes rarer; the others would squeeze the axis."""
    left_out = _titles([arm for p in panels for arm in p["arms"] if not arm["learns"]], looks)
    panels = [{**p, "arms": [arm for arm in p["arms"] if arm["learns"]]} for p in panels]
    drawn = [
        draw(
            f"powers-{panel['name']}",
            f"{panel['title']}: {shown(metric)}",
            _power_lines,
            *(panel["arms"], looks, metric),
            height=4.0,
        )
        for panel in panels
    ]
    caption = (
        "Mean over users and seeds; the bar is the standard deviation over seeds. "
        "A higher power makes exposure rarer: m = σ(score)^power."
    )
    if left_out:
        caption += f" Only in the table: {', '.join(left_out)}."
    title = "Worlds with known exposure (RQ3)"
    return Figure("powers", title, caption, drawn, _legend(panels, looks))


def _power_lines(axes: Any, arms: Arms, looks: Looks, metric: str) -> None:
    for arm in arms:
        style = line_style(looks[arm["arm"]])
        axes.errorbar(arm["powers"], arm["mean"], arm["sd"], **style, elinewidth=1, capsize=2)
    axes.set_xlabel("power of the exposure")
    axes.set_ylabel(shown(metric))
    every = sorted({power for arm in arms for power in arm["powers"]})
    axes.set_xscale("log", base=2)
    axes.set_xticks(every, [f"{power:g}" for power in every])
    axes.set_xticks([], minor=True)


def trends(panels: Panels, looks: Looks, *, over: str) -> Figure:
    """Correlation of learned and true exposure during training."""
    drawn = [
        draw(f"trend-{over}-{panel['experiment']}-{at}", panel["title"], _trend, panel, looks, over)
        for at, panel in enumerate(panels)
    ]
    span = "each of the first 100 iterations" if over == "iterations" else "each epoch"
    caption = (
        "Pearson's correlation (PCC) of learned and true exposure over all items, averaged over "
        f"users, after {span}. A line is the mean over seeds, its band the standard deviation. "
        "The thin dotted line is the highest that one exposure for all users can reach. "
        "An iteration is a batch, or a round of EM."
    )
    title = {"iterations": "at the start", "epochs": "over the training"}[over]
    return Figure(
        f"trends-{over}",
        f"The learned exposure beside the true one, {title}",
        caption,
        drawn,
        _legend(panels, looks),
        columns=2 if len(drawn) % 3 else 3,
    )


def _trend(axes: Any, panel: dict[str, Any], looks: Looks, over: str) -> None:
    if panel["ceiling"] is not None:
        axes.axhline(panel["ceiling"], color=INK, linewidth=1, linestyle=(0, (1, 2)))
    for arm in panel["arms"]:
        x, mean, sd = (np.array(arm[over][part]) for part in ("at", "mean", "sd"))
        look = looks[arm["arm"]]
        axes.plot(x, mean, **line_style(look), markevery=max(1, len(x) // 6))
        axes.fill_between(x, mean - sd, mean + sd, color=look.colour, alpha=0.18, linewidth=0)
    axes.set_xlabel({"iterations": "iteration", "epochs": "epoch"}[over])
    axes.set_ylabel("PCC with the true exposure")
    axes.set_ylim(top=min(1.02, axes.get_ylim()[1] + 0.05))


def variance(panel: dict[str, Any], looks: Looks) -> Figure:
    """The variance of the gradient against the exposure: measured, and by the formula."""
    rows = [row for arm in panel["arms"] for row in arm["rows"]]
    values = [row[key] for row in rows for key in ("empirical", "formula") if row[key] > 0]
    limits = (min(values) / 2, max(values) * 2) if values else (0.1, 1.0)
    name = f"variance-{panel['experiment']}"
    drawn = [
        draw(f"{name}-{at}", look.title, _variance_points, arm["rows"], look, limits)
        for at, arm in enumerate(panel["arms"])
        for look in [looks[arm["arm"]]]
    ]
    caption = (
        "Clicks drawn many times over at a fixed model. Points: the measured variance of ∂L/∂p in "
        "a range of exposure, with two standard errors; line: the formula. Hollow, or missing, is "
        f"a range with fewer than {FEWEST_CLICKS} clicks, too few to see its variance. Both axes "
        "are logarithmic; both panels share the vertical axis."
    )
    title = f"Variance of the gradient, {panel['title']}"
    return Figure(name, title, caption, drawn, columns=2)


def _variance_points(axes: Any, rows: Arms, look: Look, limits: tuple[float, float]) -> None:
    def column(key: str, of: Arms) -> list[float]:
        return [row[key] for row in of]

    seen = [row for row in rows if row["clicks"] >= FEWEST_CLICKS]
    rare = [row for row in rows if row["clicks"] < FEWEST_CLICKS and row["empirical"] > 0]
    points = {"color": look.colour, "marker": look.marker, "linestyle": "none"}
    formula = column("exposure", rows), column("formula", rows)
    axes.plot(*formula, color=INK, label="formula", linewidth=1.4)
    measured = column("exposure", seen), column("empirical", seen)
    errors = 2 * np.array(column("error", seen))
    axes.errorbar(*measured, errors, **points, label="measured", elinewidth=1)
    axes.plot(column("exposure", rare), column("empirical", rare), **points, fillstyle="none")
    for axis, scale in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
        scale("log")
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(lambda *_: "")
    axes.set_ylim(*limits)
    axes.set_xlabel("exposure m")
    axes.set_ylabel("variance of ∂L/∂p")
    axes.legend(frameon=False)


def _legend(panels: Panels, looks: Looks) -> list[Look]:
    """The look of every arm that appears, once."""
    return [looks[arm] for arm in dict.fromkeys(arm["arm"] for p in panels for arm in p["arms"])]


def _titles(arms: Arms, looks: Looks) -> list[str]:
    return list(dict.fromkeys(looks[arm["arm"]].title for arm in arms))

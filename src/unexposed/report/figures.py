"""The figures of the experiments' report, from the plain data of its summary."""

from typing import Any

import numpy as np

from unexposed.report.drawing import Figure, draw, line_style
from unexposed.report.look import INK, look
from unexposed.report.summary import FEWEST_CLICKS
from unexposed.report.tables import number, seconds, shown

FLOORS = ("random", "popularity")


def ablation(summaries: list[dict[str, Any]], *, metric: str) -> Figure:
    """How the exposure learns: a level for each strategy, and its paired difference from UBO."""
    panels = []
    for summary in summaries:
        name, where = f"ablation-{summary['experiment']}", summary["title"]
        arms = summary["arms"]
        panels.append(draw(name, f"{where}: {shown(metric)}", _bars, arms, metric))
        panels.append(
            draw(
                f"{name}-difference",
                f"{where}: difference from UBO",
                _differences,
                arms,
                metric,
            )
        )
    caption = (
        "Left: the mean over users and seeds with its 95 % interval over users; a dot is one seed. "
        "Right: each user's value less UBO's on the same user, with the 95 % interval of the mean: "
        "an interval that leaves zero out is a difference."
    )
    return Figure("ablation", "How the exposure is learned (RQ2)", caption, panels, columns=2)


def _bars(axes: Any, arms: list[dict[str, Any]], metric: str) -> None:
    for at, arm in enumerate(arms):
        low, high = arm["ci95"]
        style = look(arm["arm"])
        axes.bar(at, arm["mean"], color=style.colour, width=0.62, alpha=0.5)
        axes.plot([at, at], [low, high], color=INK, linewidth=1.4)
        spots = at + np.linspace(-0.16, 0.16, len(arm["by_seed"]))
        axes.plot(spots, arm["by_seed"], ".", color=INK, markersize=4)
        axes.annotate(
            number(arm["mean"]), (at, high), (0, 4), textcoords="offset points", ha="center"
        )
    axes.set_ylabel(shown(metric))
    axes.set_ylim(0, 1.15 * max(arm["ci95"][1] for arm in arms))
    axes.set_xticks(range(len(arms)), [_short(arm["arm"]) for arm in arms])
    axes.grid(visible=False, axis="x")


def _differences(axes: Any, arms: list[dict[str, Any]], metric: str) -> None:
    others = [arm for arm in arms if arm["arm"] != "ubo"]
    for at, arm in enumerate(others):
        low, high = arm["difference_ci95"]
        style = look(arm["arm"])
        axes.plot([low, high], [at, at], color=style.colour, linewidth=2.4)
        axes.plot(arm["difference"], at, style.marker, color=style.colour, markersize=7)
    axes.axvline(0, color=INK, linewidth=1)
    axes.set_yticks(range(len(others)), [_short(arm["arm"], lines=False) for arm in others])
    axes.set_ylim(len(others) - 0.5, -0.5)
    axes.set_xlabel(f"{shown(metric)} less that of UBO")
    axes.locator_params(axis="x", nbins=4)
    axes.grid(visible=False, axis="y")


def powers(summaries: list[dict[str, Any]], *, metric: str) -> Figure:
    """How every method does as exposure becomes rarer; the floors would squeeze the rest."""
    summaries = [
        {**s, "arms": [arm for arm in s["arms"] if arm["arm"] not in FLOORS]} for s in summaries
    ]
    panels = [
        draw(
            f"powers-{s['name']}",
            f"{s['title']}: {shown(metric)}",
            _power_lines,
            s,
            metric,
            height=4.0,
        )
        for s in summaries
    ]
    caption = (
        "Mean over users and seeds; the bar is the standard deviation over seeds. "
        "A higher power makes exposure rarer: m = σ(score)^power. Random and popularity "
        "are in the table."
    )
    arms = _arms(summaries)
    return Figure(
        "powers", "Worlds with known exposure (RQ3)", caption, panels, [look(arm) for arm in arms]
    )


def _power_lines(axes: Any, summary: dict[str, Any], metric: str) -> None:
    for arm in summary["arms"]:
        x, mean, sd = arm["powers"], np.array(arm["mean"]), np.array(arm["sd"])
        axes.errorbar(x, mean, sd, **line_style(look(arm["arm"])), elinewidth=1, capsize=2)
    axes.set_xlabel("power of the exposure")
    axes.set_ylabel(shown(metric))
    every = sorted({power for arm in summary["arms"] for power in arm["powers"]})
    axes.set_xscale("log", base=2)
    axes.set_xticks(every, [f"{power:g}" for power in every])
    axes.set_xticks([], minor=True)


def trends(summaries: list[dict[str, Any]], *, over: str) -> Figure:
    """Whether the learned exposure is the true one, while training goes on."""
    panels = [
        draw(
            f"trend-{over}-{s['experiment']}-{at}",
            s["title"],
            _trend_lines,
            s,
            over,
        )
        for at, s in enumerate(summaries)
    ]
    span = "each of the first 100 iterations" if over == "iterations" else "each epoch"
    caption = (
        "Pearson's correlation (PCC) of learned and true exposure over all items, averaged over "
        f"users, after {span}. A line is the mean over seeds, its band the standard deviation. "
        "The thin dotted line is the highest that an exposure can reach which is the same for "
        "every user. An iteration is a batch, of ExpoMF a round of EM."
    )
    title = {"iterations": "at the start", "epochs": "over the training"}[over]
    return Figure(
        f"trends-{over}",
        f"The learned exposure beside the true one, {title}",
        caption,
        panels,
        [look(arm) for arm in _arms(summaries)],
        columns=2 if len(panels) % 3 else 3,
    )


def _trend_lines(axes: Any, summary: dict[str, Any], over: str) -> None:
    if summary["ceiling"] is not None:
        axes.axhline(summary["ceiling"], color=INK, linewidth=1, linestyle=(0, (1, 2)))
    for arm in summary["arms"]:
        x, mean, sd = (np.array(arm[over][part]) for part in ("at", "mean", "sd"))
        style = look(arm["arm"])
        every = max(1, len(x) // 6)
        axes.plot(x, mean, **line_style(style), markevery=every)
        axes.fill_between(x, mean - sd, mean + sd, color=style.colour, alpha=0.18, linewidth=0)
    axes.set_xlabel({"iterations": "iteration", "epochs": "epoch"}[over])
    axes.set_ylabel("PCC with the true exposure")
    axes.set_ylim(top=min(1.02, axes.get_ylim()[1] + 0.05))


def variances(summaries: list[dict[str, Any]]) -> list[Figure]:
    """The variance of the gradient against the exposure, measured beside the two formulas."""
    return [_variance(summary) for summary in summaries]


def _variance(summary: dict[str, Any]) -> Figure:
    values = [
        value
        for arm in summary["arms"]
        for row in arm["rows"]
        for value in (row["empirical"], row["formula"])
        if value > 0
    ]
    limits = (min(values) / 2, max(values) * 2) if values else (0.1, 1.0)
    panels = [
        draw(
            f"variance-{summary['experiment']}-{at}",
            arm["title"],
            _variance_points,
            arm,
            limits,
        )
        for at, arm in enumerate(summary["arms"])
    ]
    caption = (
        "Clicks drawn many times over at a fixed model. Points: the measured variance of ∂L/∂p in "
        "a range of exposure, with two standard errors; line: the formula. Hollow, or missing, is "
        f"a range with fewer than {FEWEST_CLICKS} clicks, too few to see its variance. Both axes "
        "are logarithmic; the upright one is the same in both panels."
    )
    return Figure(
        f"variance-{summary['experiment']}",
        f"Variance of the gradient, {summary['title']}",
        caption,
        panels,
        columns=2,
    )


def _variance_points(axes: Any, arm: dict[str, Any], limits: tuple[float, float]) -> None:
    rows, style = arm["rows"], look(arm["look"])
    seen = [row for row in rows if row["clicks"] >= FEWEST_CLICKS]
    rare = [row for row in rows if row["clicks"] < FEWEST_CLICKS and row["empirical"] > 0]
    exposure = [row["exposure"] for row in rows]
    axes.plot(exposure, [row["formula"] for row in rows], color=INK, label="formula", linewidth=1.4)
    axes.errorbar(
        [row["exposure"] for row in seen],
        [row["empirical"] for row in seen],
        [2 * row["error"] for row in seen],
        color=style.colour,
        marker=style.marker,
        linestyle="none",
        label="measured",
        elinewidth=1,
    )
    axes.plot(
        [row["exposure"] for row in rare],
        [row["empirical"] for row in rare],
        color=style.colour,
        marker=style.marker,
        linestyle="none",
        fillstyle="none",
    )
    for axis, scale in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
        scale("log")
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(lambda *_: "")
    axes.set_ylim(*limits)
    axes.set_xlabel("exposure m")
    axes.set_ylabel("variance of ∂L/∂p")
    axes.legend(frameon=False)


def timing(summaries: list[dict[str, Any]]) -> Figure:
    """Seconds that an epoch takes, on every engine it was measured on."""
    panels = [
        draw(
            f"timing-{at}-{s['engine']}",
            f"{s['title']}, {s['engine']}",
            _time_bars,
            s["arms"],
            height=0.9 + 0.42 * len(s["arms"]),
        )
        for at, s in enumerate(summaries)
    ]
    caption = "Median of the repeats; a dot is one of them. Every panel has its own scale."
    return Figure("timing", "Seconds an epoch", caption, panels)


def _time_bars(axes: Any, arms: list[dict[str, Any]]) -> None:
    for at, arm in enumerate(arms):
        axes.barh(at, arm["median"], color=look(arm["arm"]).colour, height=0.6, alpha=0.5)
        axes.plot(arm["seconds"], [at] * len(arm["seconds"]), ".", color=INK, markersize=4)
        far = max(arm["seconds"])
        axes.annotate(
            seconds(arm["median"]), (far, at), (5, 0), textcoords="offset points", va="center"
        )
    axes.set_yticks(range(len(arms)), [_short(arm["arm"], lines=False) for arm in arms])
    axes.set_ylim(len(arms) - 0.5, -0.5)
    axes.set_xlim(0, 1.25 * max(max(arm["seconds"]) for arm in arms))
    axes.set_xlabel("seconds an epoch")
    axes.locator_params(axis="x", nbins=5)
    axes.grid(visible=False, axis="y")


def _arms(summaries: list[dict[str, Any]]) -> list[str]:
    """Every arm that appears, once, in the order of the first."""
    return list(dict.fromkeys(arm["arm"] for s in summaries for arm in s["arms"]))


def _short(arm: str, *, lines: bool = True) -> str:
    words = {"UBO, frozen exposure": "UBO,\nfrozen", "UBO, drawn validation set": "UBO,\ndrawn"}
    title = look(arm).title
    title = words.get(title, title)
    return title if lines else title.replace("\n", " ")

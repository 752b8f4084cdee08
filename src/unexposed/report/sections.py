"""The sections of the experiments' report: which tables and figures a document of results gives."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from unexposed.evaluation.protocols import TRUE_RELEVANCE
from unexposed.report import experiment_tables as make
from unexposed.report import figures, study_tables
from unexposed.report.drawing import Figure
from unexposed.report.experiments import world_title
from unexposed.report.look import Looks
from unexposed.report.summary import learns
from unexposed.report.tables import Table, shown

Document = dict[str, Any]
About = dict[str, Any]  # one experiment of the document


@dataclass(frozen=True)
class Section:
    """A heading, its text, tables and figures, and the experiments behind them."""

    name: str
    title: str
    text: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    experiments: list[About] = field(default_factory=list)  # whose origins are shown
    draw: Callable[[Looks], list[Figure]] = lambda _: []


def sections(document: Document) -> list[Section]:
    """Every section that has something to show, in reading order."""
    made = (_ablations, _powers, _trends, _variances, _timing, _appendix)
    found = [*_comparisons(document), *(make_one(document) for make_one in made)]
    return [section for section in found if section is not None]


def titles(document: Document) -> dict[str, str]:
    """The paper's names for the arms of the experiments."""
    return document["paper"].get("titles", {})


def _with(document: Document, part: str, source: str = "") -> list[About]:
    """The experiments that have this part, on this source of data."""
    return [
        about
        for about in document["experiments"]
        if about.get("found", {}).get(part) and (not source or source in about["data"])
    ]


def _comparisons(document: Document) -> Iterator[Section]:
    for about in _with(document, "comparison"):
        if "semi_synthetic" in about["data"] or _is_ablation(about):
            continue  # shown together, over their powers or strategies
        paper = document["paper"].get(about["data"].get("dataset", ""), {})
        found = about["found"]["comparison"]
        table = make.full_comparison(about["name"], about["where"], found, paper)
        names = [result["method"] for result in found["results"]]
        if explained := make.explained(names, titles(document)):
            table.notes.append(f"{explained}.")
        name = f"section-{about['name']}"
        yield Section(name, about["title"], _caveats(document, [about]), [table], [about])


def _is_ablation(about: About) -> bool:
    """Whether all arms are forms of one method that learn the exposure by several strategies."""
    forms = about["found"]["ablation"]
    is_one_method = len(forms) == len(about["found"]["comparison"]["results"])
    return is_one_method and any("strategy" in form["changed"] for form in forms)


def _ablations(document: Document) -> Section | None:
    chosen = [about for about in _with(document, "ablation") if _is_ablation(about)]
    if not chosen:
        return None
    places = [a["where"] for a in chosen]
    panels = [
        {
            "experiment": a["name"],
            "title": a["where"] if places.count(a["where"]) == 1 else a["title"].split(": ")[-1],
            "arms": a["found"]["ablation"],
        }
        for a in chosen
    ]
    metric, known = chosen[0]["found"]["metric"], titles(document)
    base = make.base_title(panels[0]["arms"], known)
    return Section(
        "strategies",
        "Is the gain due to the bi-level strategy?",
        _caveats(document, chosen),
        [make.differences("differences", f"The strategies of {base}", panels, metric, known)],
        chosen,
        lambda looks: [figures.ablation(panels, looks, metric=metric, base=base)],
    )


def _powers(document: Document) -> Section | None:
    chosen = _with(document, "comparison", "semi_synthetic")
    if not chosen:
        return None
    metric = chosen[0]["found"]["metric"]
    worlds: dict[tuple[str, str], list[About]] = {}  # by question and world
    for about in chosen:
        worlds.setdefault((_question(about), world_title(about["data"])), []).append(about)
    several = len({question for question, _ in worlds}) > 1
    panels: list[dict[str, Any]] = [
        {
            "name": f"{question}-{_world_name(abouts[0])}",
            "title": f"{title} ({question})" if several else title,
            "arms": _over_powers(abouts, metric),
            "protocol": _by_truth(abouts[0])["protocol"],
        }
        for (question, title), abouts in worlds.items()
    ]
    return Section(
        "worlds",
        "Worlds with known exposure",
        _caveats(document, chosen),
        [
            make.powers(f"powers-{p['name']}", p["title"], p["arms"], metric, p["protocol"])
            for p in panels
        ],
        chosen,
        lambda looks: [figures.powers(panels, looks, metric=metric)],
    )


def _question(about: About) -> str:
    """The name of the folder that an experiment lies in."""
    return PurePath(about["command"]).parent.name


def _by_truth(about: About) -> dict[str, Any]:
    """The comparison by true relevance, where there is one: it is the least noisy."""
    found = about["found"]
    every = [*found["also"], found["comparison"]]
    return next((c for c in every if c["protocol"] == TRUE_RELEVANCE.name), found["comparison"])


def _over_powers(abouts: list[About], metric: str) -> list[dict[str, Any]]:
    """Each arm's mean and deviation at every power of the exposure."""
    arms: dict[str, dict[str, Any]] = {}
    for about in sorted(abouts, key=lambda about: about["data"]["power"]):
        origins = {origin["arm"]: origin for origin in about["origins"]}
        for result in _by_truth(about)["results"]:
            arm = result["method"]
            own = arms.setdefault(
                arm,
                {
                    "arm": arm,
                    "learns": learns(origins[arm]["method"]),
                    "given": result["given"],
                    **{part: [] for part in ("powers", "mean", "sd", "pcc")},
                },
            )
            own["powers"].append(about["data"]["power"])
            own["mean"].append(result["metrics"][metric]["mean"])
            own["sd"].append(result["metrics"][metric]["sd"])
            own["pcc"].append(about["found"]["exposures"].get(arm))
    return list(arms.values())


def _panels(chosen: list[About], **parts: str) -> list[dict[str, Any]]:
    """A panel for each experiment, with parts of its results by name."""
    return [
        {"experiment": about["name"], "title": about["where"]}
        | {name: about["found"][part] for name, part in parts.items()}
        for about in chosen
    ]


def _trends(document: Document) -> Section | None:
    chosen = sorted(_with(document, "trend"), key=lambda about: _world(about["data"]))
    if not chosen:
        return None
    panels = _panels(chosen, arms="trend", ceiling="ceiling")
    tables = [study_tables.trend("pcc", "PCC of learned and true exposure", panels)]
    return Section(
        "exposure",
        "Does the learned exposure match the true one?",
        _caveats(document, chosen),
        tables,
        chosen,
        lambda looks: [figures.trends(panels, looks, over=o) for o in ("iterations", "epochs")],
    )


def _world(data: dict[str, Any]) -> tuple[str, str, float]:
    source = data.get("semi_synthetic", data.get("dataset", ""))
    return str(source), str(data.get("generator", "")), float(data.get("power", 0))


def _world_name(about: About) -> str:
    return f"{about['data']['semi_synthetic']}-{about['data']['generator']}"


def _variances(document: Document) -> Section | None:
    chosen = _with(document, "variance")
    if not chosen:
        return None
    panels, known = _panels(chosen, arms="variance", ratios="ratios"), titles(document)
    tables = [
        study_tables.variance(
            f"variances-{p['experiment']}", p["title"], p["arms"], p["ratios"], known
        )
        for p in panels
    ]
    return Section(
        "noise",
        "How noisy are the two losses?",
        _caveats(document, chosen),
        tables,
        chosen,
        lambda looks: [figures.variance(panel, looks) for panel in panels],
    )


def _timing(document: Document) -> Section | None:
    chosen = _with(document, "timing")
    if not chosen:
        return None
    panels = [
        {"title": about["where"], **place} for about in chosen for place in about["found"]["timing"]
    ]
    paper = document["paper"].get("timing", {})
    return Section(
        "cost",
        "What does an epoch cost?",
        tables=[study_tables.timing("times", "Seconds an epoch", panels, paper)],
        experiments=chosen,
    )


def _appendix(document: Document) -> Section | None:
    """Other metrics, and how each method does on popular and on rare items."""
    tables = []
    for about in _with(document, "comparison"):
        found = about["found"]
        if "semi_synthetic" in about["data"] or _is_ablation(about):
            name, title = f"full-{about['name']}", f"{about['title']}: every metric"
            tables.append(make.full_comparison(name, title, found["comparison"], {}))
        for also in found["also"]:
            name = f"{about['name']}-{also['protocol']}"
            title = f"{about['title']}: protocol {also['protocol']}"
            tables.append(make.full_comparison(name, title, also, {}))
        title = f"{about['title']}: by popularity, {shown(found['metric'])}"
        name = f"{about['name']}-strata"
        tables.append(make.strata(name, title, found["strata"], found["metric"]))
    if not tables:
        return None
    return Section("appendix", "Appendix: other metrics, and popularity", tables=tables)


def _caveats(document: Document, chosen: list[About]) -> list[str]:
    """Warnings about the data behind these experiments."""
    names = {about["data"].get("dataset", about["data"].get("semi_synthetic")) for about in chosen}
    caveats: dict[str, str] = document["paper"].get("caveats", {})
    return [text for name, text in caveats.items() if name in names]

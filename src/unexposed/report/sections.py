"""The parts of the experiments' report: which tables and figures a document of results gives."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from unexposed.data.datasets import DATASETS
from unexposed.report import experiment_tables as make
from unexposed.report import figures, study_tables
from unexposed.report.drawing import Figure
from unexposed.report.look import place
from unexposed.report.tables import Table, shown

Document = dict[str, Any]
About = dict[str, Any]  # one experiment of the document


@dataclass(frozen=True)
class Section:
    """A heading, what it says, its figures and tables, and where the numbers came from."""

    name: str
    title: str
    text: list[str] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    experiments: list[About] = field(default_factory=list)  # whose origins are shown


def sections(document: Document, *, drawn: bool = True) -> list[Section]:
    """Every section that has something to show, in reading order; figures only where wanted."""
    found = [
        *_comparisons(document),
        _ablations(document, drawn),
        _levers(document),
        _powers(document, drawn),
        _trends(document, drawn),
        _variances(document, drawn),
        _timing(document, drawn),
        _appendix(document),
    ]
    return [section for section in found if section is not None]


def of_kind(document: Document, part: str, source: str | None = None) -> list[About]:
    """The experiments that gave such a part, on such a source of data."""
    return [
        about
        for about in document["experiments"]
        if about.get("found", {}).get(part) and (source is None or source in about["data"])
    ]


def _comparisons(document: Document) -> Iterator[Section]:
    for about in of_kind(document, "comparison"):
        if "semi_synthetic" in about["data"] or _is_ablation(about):
            continue  # shown together, over their powers or strategies
        paper = document["paper"].get(about["data"].get("dataset", ""), {})
        table = make.full_comparison(
            about["name"], about["where"], about["found"]["comparison"], paper
        )
        names = [result["method"] for result in about["found"]["comparison"]["results"]]
        titles = make.method_titles(names)
        if titles:
            table.notes.append(f"{titles}.")
        yield Section(
            f"section-{about['name']}",
            about["title"],
            _caveats(document, [about]),
            tables=[table],
            experiments=[about],
        )


def _is_ablation(about: About) -> bool:
    results = about["found"]["comparison"]["results"]
    return len(about["found"]["ablation"]) == len(results)


def _turns_levers(about: About) -> bool:
    """Whether all its arms learn the exposure by one strategy, and differ in other settings."""
    return _is_ablation(about) and not any(
        "strategy" in arm["changed"] for arm in about["found"]["ablation"]
    )


def _ablations(document: Document, drawn: bool) -> Section | None:
    chosen = [
        about
        for about in of_kind(document, "ablation")
        if _is_ablation(about) and not _turns_levers(about)
    ]
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
    metric = chosen[0]["found"]["metric"]
    return Section(
        "strategies",
        "Is the gain due to the bi-level strategy?",
        _caveats(document, chosen),
        [figures.ablation(panels, metric=metric)] if drawn else [],
        [make.differences("differences", "The strategies of UBO", panels, metric)],
        experiments=chosen,
    )


def _levers(document: Document) -> Section | None:
    chosen = [about for about in of_kind(document, "ablation") if _turns_levers(about)]
    if not chosen:
        return None
    panels = {about["where"]: about["found"]["ablation"] for about in chosen}
    metric = chosen[0]["found"]["metric"]
    return Section(
        "levers",
        "What holds UBO back?",
        _caveats(document, chosen),
        tables=[make.levers("changes", "One change to UBO at a time", panels, metric)],
        experiments=chosen,
    )


def _powers(document: Document, drawn: bool) -> Section | None:
    chosen = of_kind(document, "comparison", "semi_synthetic")
    if not chosen:
        return None
    metric = chosen[0]["found"]["metric"]
    worlds: dict[str, list[About]] = {}
    for about in chosen:
        worlds.setdefault(about["data"]["semi_synthetic"], []).append(about)
    panels: list[dict[str, Any]] = [
        {"name": name, "title": DATASETS[name].title, "arms": _over_powers(abouts, metric)}
        for name, abouts in worlds.items()
    ]
    return Section(
        "worlds",
        "Worlds with known exposure",
        _caveats(document, chosen),
        [figures.powers(panels, metric=metric)] if drawn else [],
        [make.powers(f"powers-{p['name']}", p["title"], p["arms"], metric) for p in panels],
        experiments=chosen,
    )


def _over_powers(abouts: list[About], metric: str) -> list[dict[str, Any]]:
    """Each arm's mean and deviation at every power of the exposure."""
    arms: dict[str, dict[str, Any]] = {}
    for about in sorted(abouts, key=lambda about: about["data"]["power"]):
        for result in about["found"]["comparison"]["results"]:
            arm = result["method"]
            own = arms.setdefault(arm, {"arm": arm, "powers": [], "mean": [], "sd": []})
            own["powers"].append(about["data"]["power"])
            own["mean"].append(result["metrics"][metric]["mean"])
            own["sd"].append(result["metrics"][metric]["sd"])
    return [arms[arm] for arm in sorted(arms, key=place)]


def _trends(document: Document, drawn: bool) -> Section | None:
    chosen = sorted(of_kind(document, "trend"), key=lambda about: _world(about["data"]))
    if not chosen:
        return None
    panels = [
        {
            "experiment": about["name"],
            "title": about["where"],
            "arms": about["found"]["trend"],
            "ceiling": about["found"]["ceiling"],
        }
        for about in chosen
    ]
    tables = [study_tables.trend("pcc", "PCC of learned and true exposure", panels)]
    seen = [row for about in chosen for row in about["found"]["observations"]]
    if seen:
        tables.append(study_tables.observations("observations", "The paper's observations", seen))
    return Section(
        "exposure",
        "Does the exposure learn what is true?",
        _caveats(document, chosen),
        [figures.trends(panels, over=over) for over in ("iterations", "epochs")] if drawn else [],
        tables,
        experiments=chosen,
    )


def _world(data: dict[str, Any]) -> tuple[str, float]:
    return str(data.get("semi_synthetic", data.get("dataset", ""))), float(data.get("power", 0))


def _variances(document: Document, drawn: bool) -> Section | None:
    chosen = of_kind(document, "variance")
    if not chosen:
        return None
    panels = [
        {
            "experiment": about["name"],
            "title": about["where"],
            "arms": about["found"]["variance"],
            "ratios": about["found"]["ratios"],
        }
        for about in chosen
    ]
    return Section(
        "noise",
        "How noisy are the two losses?",
        _caveats(document, chosen),
        figures.variances(panels) if drawn else [],
        [
            study_tables.variance(
                f"variances-{p['experiment']}", p["title"], p["arms"], p["ratios"]
            )
            for p in panels
        ],
        experiments=chosen,
    )


def _timing(document: Document, drawn: bool) -> Section | None:
    chosen = of_kind(document, "timing")
    if not chosen:
        return None
    panels = [
        {"title": about["where"], **place} for about in chosen for place in about["found"]["timing"]
    ]
    table = study_tables.timing(
        "times", "Seconds an epoch", panels, document["paper"].get("timing", {})
    )
    return Section(
        "cost",
        "What does an epoch cost?",
        figures=[figures.timing(panels)] if drawn else [],
        tables=[table],
        experiments=chosen,
    )


def _appendix(document: Document) -> Section | None:
    """Other metrics, and how each method does on popular and on rare items."""
    tables = []
    for about in of_kind(document, "comparison"):
        if _turns_levers(about):
            continue
        found = about["found"]
        if "semi_synthetic" in about["data"] or _is_ablation(about):
            name, title = f"full-{about['name']}", f"{about['title']}: every metric"
            tables.append(make.full_comparison(name, title, found["comparison"], {}))
        for also in found["also"]:
            name = f"{about['name']}-{also['protocol']}"
            title = f"{about['title']}: protocol {also['protocol']}"
            tables.append(make.plain_comparison(name, title, also))
        title = f"{about['title']}: by popularity, {shown(found['metric'])}"
        name = f"{about['name']}-strata"
        tables.append(make.strata(name, title, found["strata"], found["metric"]))
    return (
        Section("appendix", "Appendix: other metrics, and popularity", tables=tables)
        if tables
        else None
    )


def _caveats(document: Document, chosen: list[About]) -> list[str]:
    """What the reader must know of the data behind a figure."""
    names = {about["data"].get("dataset", about["data"].get("semi_synthetic")) for about in chosen}
    caveats: dict[str, str] = document["paper"].get("caveats", {})
    return [text for name, text in caveats.items() if name in names]

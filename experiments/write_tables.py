"""Write the tables of the READMEs and docs/ from the committed results.

A table stands between <!-- NAME --> and <!-- end of NAME -->; a test fails when one is stale.
"""

import json
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from docs_tables import (
    benchmarks,
    choice,
    comparisons,
    scaling,
    serving,
    stored,
    verdict,
    worth,
)
from docs_tables import criteria as criterion
from docs_tables.blocks import filled, section_block
from docs_tables.stored import Place
from unexposed.cards import number
from unexposed.evaluation.significance import bootstrap_interval
from unexposed.report.experiment_tables import paper_figure
from unexposed.report.experiments import document
from unexposed.report.sections import Section, sections
from unexposed.report.tables import Table, markdown, shown

HERE = Path(__file__).parent
ROOT = HERE.parent
IN_README = ("popularity", "mf", "bpr", "ubpr", "umf", "ubo", "ubo-frozen")
PAPER = tomllib.loads((HERE / "paper.toml").read_text(encoding="utf-8"))


def result(name: str) -> Any:
    return _read(ROOT / "benchmarks" / "results" / f"{name}.json")


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@cache
def results() -> tuple[dict[str, Any], list[Section]]:
    found = document(HERE, without=("advised", "exposure", "shown"))  # `places` reads these
    return found, sections(found)


def compared_in(name: str) -> str:
    """DCG@3 of the methods of an experiment, or the command that makes them."""
    asked = experiment(name)
    if not asked.get("found"):
        return f"Results are missing; to make them: `{asked['command']}`."
    found = asked["found"]["comparison"]
    return markdown(comparisons.short_comparison(name, name, found, {}, ["dcg@3"]))


def section(name: str, kind: str, files: str = "*", tables: str = "") -> str:
    return section_block(*results(), name, kind=kind, files=files, tables=tables)


def experiment(name: str) -> dict[str, Any]:
    return next(about for about in results()[0]["experiments"] if about["name"] == name)


def real(trained_on: str) -> dict[str, dict[str, Any]]:
    """The experiments on real data sets, by the title of the data set."""
    names = [f"real-{dataset}-{trained_on}" for dataset in ("coat", "yahoo_r3")]
    asked = (about for about in results()[0]["experiments"] if about["name"] in names)
    return {about["where"]: about for about in asked}


def compared_with(about: dict[str, Any]) -> tuple[dict[str, Any], comparisons.Paper] | None:
    """The comparison of an experiment and the paper's figures, if it has been run."""
    if not about.get("found"):
        return None
    return about["found"]["comparison"], PAPER[about["data"]["dataset"]]


def summary() -> str:
    """DCG@3 of some methods beside the paper's, chosen by the criterion that each log advises."""
    asked = {
        about["where"]: about
        for about in (experiment("real-coat-held_out"), experiment("rated-held_out"))
    }
    found = {where: pair for where, about in asked.items() if (pair := compared_with(about))}
    table = comparisons.side_by_side("results", "Results", found, "dcg@3", only=IN_README)
    return "\n\n".join([markdown(table), *_lacking(asked.values())])


def real_traffic() -> str:
    """DCG@3 and MAP@3 with a tenth of the clicks held out, and DCG@3 with all of them."""
    asked, refitted = real("held_out"), real("all_clicks")
    columns = []
    for where, about in asked.items():
        if pair := compared_with(about):
            columns += [
                comparisons.Column(f"{where} {shown(metric)}", pair[0], metric, pair[1])
                for metric in ("dcg@3", "map@3")
            ]
        if pair := compared_with(refitted[where]):
            columns.append(comparisons.Column(f"{where} DCG@3, all clicks", pair[0], "dcg@3", {}))
    table = comparisons.columns("real", "Real random traffic", columns, PAPER["titles"])
    lacking = _lacking([*asked.values(), *refitted.values()])
    return "\n\n".join([markdown(table), _how_sure("ubo", asked), *lacking])


def rated() -> str:
    """Yahoo!R3 chosen by ratings: every method, what the choice moves, and who is above whom."""
    asked = [experiment(f"rated-{part}") for part in ("held_out", "all_clicks")]
    columns = []
    for about, part in zip(asked, ("", ", all clicks"), strict=True):
        if pair := compared_with(about):
            columns += [
                comparisons.Column(f"{shown(m)}{part}", pair[0], m, {} if part else pair[1])
                for m in ("dcg@3", "map@3")
            ]
    table = comparisons.columns("rated", "Chosen by ratings", columns, PAPER["titles"])
    (clicks,), (ratings,) = places("real", "yahoo_r3-held_out"), places("rated", "held_out")
    of_all = places("rated", "all_clicks")
    moved = choice.judged(clicks, ratings, ("DCG@3", "by `popular_half`", "by `shown`"))
    asked_of = [ratings, *(replace(p, short=f"{p.short}, all clicks") for p in of_all)]
    parts = [table, moved, *(verdict.differences(place, RATED) for place in asked_of)]
    return "\n\n".join([*map(markdown, parts), *_lacking(asked)])


def tellable() -> str:
    """The difference that each judged set can tell from chance, in a sentence."""
    said = [
        f"{number(verdict.smallest(place, TUNED))} on {place.title}"
        for place in places("real", "held_out")
    ]
    return (
        f"Two tuned methods differ by more than chance (p < .05, one test) from about "
        f"{' and '.join(said)}: 1.96 standard errors over users, median over pairs of methods."
    )


def _how_sure(arm: str, asked: dict[str, dict[str, Any]]) -> str:
    """The interval of an arm's DCG@3 on each data set, with the paper's figure."""
    said = []
    for place in places("real", "held_out"):
        low, high = bootstrap_interval(place.values[arm].mean(axis=0), seed=0)
        theirs = paper_figure(PAPER[asked[place.title]["data"]["dataset"]], "dcg@3", arm)
        said.append(f"{place.title} {number(low)} … {number(high)} ({theirs})")
    return f"95 % interval of `{arm}`'s DCG@3 over users: {', '.join(said)}."


def _lacking(abouts: Iterable[dict[str, Any]]) -> list[str]:
    """The commands that make missing results, as a paragraph."""
    lacking = (about for about in abouts if about["missing"] or about["problem"])
    commands = dict.fromkeys(f"`{about['command']}`" for about in lacking)
    return [f"Some results are missing; to make them: {', '.join(commands)}."] if commands else []


def worlds() -> str:
    """Every method in every world, by true relevance: a table for each generator."""
    return section("worlds", "compare", "worlds-*", "powers-worlds-")


@cache
def places(question: str, part: str | None = None) -> list[Place]:
    return stored.places(HERE / question / f"{question}.toml", part=part)


def the_verdict() -> str:
    of_ratings = [replace(p, title=RATINGS, short=RATINGS) for p in places("rated", "held_out")]
    on_data = [*places("real", "held_out"), *of_ratings]
    return markdown(verdict.verdict([*on_data, *places("exposure")]))


def of_exposure(make: Callable[[Sequence[Place]], Table]) -> Callable[[], str]:
    """A table made from the ablation of exposure learning."""
    return lambda: markdown(make(places("exposure")))


def of_amazon(make: Callable[[Sequence[Place]], Table]) -> Callable[[], str]:
    """The same in worlds made from Amazon CDs."""
    return lambda: markdown(make(stored.places(HERE / "exposure" / "amazon.toml")))


def chosen_by() -> str:
    """Yahoo!R3 with settings and epochs chosen by two criteria, beside the paper's figures."""
    columns = []
    for name, head in CHOSEN_BY.items():
        found, paper = experiment(name)["found"]["comparison"], PAPER["yahoo_r3"]
        kept = [r for r in found["results"] if r["method"] in AS_PAPER]
        columns += [
            comparisons.Column(f"{shown(metric)}: {head}", found | {"results": kept}, metric, paper)
            for metric in ("dcg@3", "map@3")
        ]
    return markdown(comparisons.columns("chosen-by", "Two criteria", columns, PAPER["titles"]))


def protocol() -> str:
    """Yahoo!R3 with the settings that the paper states, beside its figures."""
    about = experiment("protocol")
    pair = compared_with(about)
    if pair is None:
        return "\n\n".join(_lacking([about]))
    asked = [comparisons.Column(shown(m), pair[0], m, pair[1]) for m in ("dcg@3", "map@3")]
    table = comparisons.columns("protocol", "The paper's protocol", asked, PAPER["titles"])
    (place,) = places("protocol")
    less = verdict.differences(place, PROTOCOL)
    return "\n\n".join([markdown(table), markdown(less), *_lacking([about])])


def choices() -> str:
    """Two choices of settings for Coat: what the log says of them, and what the judged set says."""
    (first,), (second,) = places("choice"), places("real", "coat-held_out")
    by_log = choice.judges(_read(HERE / "choice" / "splits.json"))
    heads = "judged DCG@3", "5 splits", "20 splits, wider"
    return "\n\n".join(markdown(t) for t in (by_log, choice.judged(first, second, heads)))


def advised() -> str:
    """A world with settings chosen by two criteria, and what its log says of criteria."""
    names = {f"{generator}, power 0.5": generator for generator in ("saito", "converged")}
    logs = {world: _read(HERE / "advised" / f"{name}.json") for world, name in names.items()}
    (first,) = places("worlds", "amazon_cds-saito-0.5")
    (second,) = places("advised")
    by_two = choice.judged(first, second, ("true DCG@3", "by `popular`", "by `wtd`"))
    return "\n\n".join(markdown(t) for t in (criterion.criteria(logs), by_two))


def advised_by_shown() -> str:
    """MF chosen by what was shown, beside the popular order and the choices by clicks alone."""
    tables = []
    for place in stored.places(HERE / "advised" / "shown.toml"):
        generator = place.name.removeprefix("shown-")
        (by_clicks,) = places("worlds", f"amazon_cds-{generator}-0.5")
        heads = f"true DCG@3, {place.short}", "by `popular`", "by `shown`"
        tables.append(choice.judged(by_clicks, place, heads))
        pair = {"MF, by `shown`, less popularity": ("mf", "popularity")}
        tables.append(verdict.differences(place, pair))
    return "\n\n".join(map(markdown, tables))


def criteria() -> str:
    logs = {"Coat": "coat", "Yahoo!R3": "yahoo_r3"}
    found = {title: _read(HERE / "criterion" / f"{name}.json") for title, name in logs.items()}
    return markdown(criterion.criteria(found))


def epochs() -> str:
    return markdown(criterion.epochs(_read(HERE / "criterion" / "epoch_choice.json")))


def written(make: Callable[[Any], Table], name: str) -> Callable[[], str]:
    """A table made from one file of results."""
    return lambda: markdown(make(result(name)))


def of_shown(make: Callable[[Sequence[Place]], Table]) -> Callable[[], str]:
    """A table made from the shops that say what was shown."""
    return lambda: markdown(make(places("shown")))


def worth_in(file: str, pairs: dict[str, str]) -> Callable[[], str]:
    """What rows of another file of that folder gain."""
    return lambda: markdown(worth.worth(stored.places(HERE / "shown" / file), pairs, file, ""))


BENCHMARKS, RESULTS = "benchmarks/README.md", "docs/results.md"
SHOWN, DATA = "experiments/shown/README.md", "docs/data.md"
RATINGS = "Yahoo!R3, chosen by ratings"
TUNED = ("mf", "bpr", "ubpr", "relmf", "umf", "ubo")
RATED = {
    "UBO less UMF": ("ubo", "umf"),
    "UBO, learned less frozen": ("ubo", "ubo-frozen"),
    "UMF less MF": ("umf", "mf"),
    "UBO less MF": ("ubo", "mf"),
    "BPR less UBO": ("bpr", "ubo"),
}
CHOSEN_BY = {
    "rated-held_out": "both by `shown`",
    "real-yahoo_r3-held_out": "both by `popular_half`",
    "epoch": "settings by `popular_half`, epoch by `uniform`",
    "as_paper": "both by `uniform`",
}
AS_PAPER = ("mf", "bpr", "umf", "ubo", "ubo-frozen")
PROTOCOL = {
    "UBO less UMF": ("ubo", "umf"),
    "UBO, frozen, less UMF": ("ubo-frozen", "umf"),
    "UBO, learned less frozen": ("ubo", "ubo-frozen"),
    "UBO less UBO at the paper's learning rate": ("ubo", "ubo-paper"),
    "UBO less JointOpt": ("ubo", "ubo-joint"),
    "UBO less MF": ("ubo", "mf"),
}
READ_BY_CLICKS = {
    "mf": "MF",
    "umf-true": "UMF, true exposure",
    "umf-item_means": "UMF, item means of it",
}
TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "results table": ("README.md", summary),
    "cpu table": (BENCHMARKS, written(benchmarks.cpu, "engine_cpu")),
    "validation batch table": (BENCHMARKS, partial(compared_in, "validation_batch")),
    "share table": (BENCHMARKS, written(benchmarks.share, "epoch_share")),
    "step table": (BENCHMARKS, written(benchmarks.step, "step")),
    "estimator table": (BENCHMARKS, written(benchmarks.estimator, "estimator")),
    "card table": (BENCHMARKS, written(benchmarks.card, "engine_cuda")),
    "ranks on cores table": (BENCHMARKS, written(scaling.on_cores, "scaling")),
    "whole log table": (BENCHMARKS, written(scaling.whole_log, "divided_log")),
    "ranks on a card table": (BENCHMARKS, written(scaling.on_a_card, "scaling_cuda")),
    "sharing a card table": (BENCHMARKS, written(scaling.sharing_a_card, "scaling_cuda")),
    "fold-in table": (BENCHMARKS, written(serving.fold_in, "fold_in_yahoo")),
    "update table": (BENCHMARKS, written(serving.update, "update_ml100k")),
    "lists table": (BENCHMARKS, written(serving.lists, "recommend")),
    "memory table": (BENCHMARKS, written(serving.memory, "recommend")),
    "service table": (BENCHMARKS, written(serving.service, "serve")),
    "verdict table": (RESULTS, the_verdict),
    "clicks table": (
        "experiments/exposure/README.md",
        of_exposure(partial(verdict.clicks_and_truth, arms=READ_BY_CLICKS)),
    ),
    "worlds results": (
        "experiments/worlds/README.md",
        partial(section, "worlds", "compare", "worlds-*", "powers-worlds-"),
    ),
    "advised": ("experiments/advised/README.md", advised),
    "advised by shown": ("experiments/advised/README.md", advised_by_shown),
    "real results": ("experiments/real/README.md", real_traffic),
    "rated results": ("experiments/rated/README.md", rated),
    "tellable": (RESULTS, tellable),
    "choices": ("experiments/choice/README.md", choices),
    "criteria": ("experiments/criterion/README.md", criteria),
    "chosen by": ("experiments/criterion/README.md", chosen_by),
    "picked epochs": ("experiments/criterion/README.md", epochs),
    "protocol results": ("experiments/protocol/README.md", protocol),
    "amazon": ("experiments/exposure/README.md", of_amazon(verdict.exposure)),
    "amazon shares": ("experiments/exposure/README.md", of_amazon(verdict.share)),
    "amazon verdict": ("experiments/exposure/README.md", of_amazon(verdict.verdict)),
    "ablation": ("experiments/exposure/README.md", of_exposure(verdict.exposure)),
    "shares": ("experiments/exposure/README.md", of_exposure(verdict.share)),
    "strategies results": (
        "experiments/strategies/README.md",
        partial(section, "strategies", "compare", "strategies*"),
    ),
    "trend results": (
        "experiments/trend/README.md",
        partial(section, "exposure", "exposure_trend"),
    ),
    "variance results": (
        "experiments/variance/README.md",
        partial(section, "noise", "gradient_variance"),
    ),
    "impressions table": (
        DATA,
        of_shown(partial(worth.worth, pairs=worth.IMPRESSIONS, name="impressions", title="")),
    ),
    "impressions share": (SHOWN, lambda: worth.shares(places("shown"))),
    "traffic table": (
        SHOWN,
        of_shown(partial(worth.worth, pairs=worth.TRAFFIC, name="traffic", title="")),
    ),
    "followed table": (DATA, worth_in("tuned.toml", worth.IMPRESSIONS)),
    "coat traffic table": (SHOWN, worth_in("coat.toml", worth.COAT)),
    "shown levels": (SHOWN, of_shown(worth.levels)),
    "timing results": ("experiments/timing/README.md", partial(section, "cost", "timing")),
}


def main() -> None:
    for name, (page, content) in TABLES.items():
        path = ROOT / page
        text = path.read_text(encoding="utf-8")
        path.write_text(filled(text, name, content()), encoding="utf-8")
    stored.MEMORY.write()


if __name__ == "__main__":
    main()

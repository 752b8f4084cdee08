"""Write the tables of README, docs/ and the pages of experiments/ from the committed results.

    python experiments/lib/pages.py

A table stands between <!-- NAME --> and <!-- end of NAME -->; a test fails when one is stale.
"""

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import cell_tables
import stored
import study_tables
import verdict
from cell_tables import PAPER, Column, columns, lacking, made_by, paper_figure
from markdown import markdown
from stored import FOLDER, MEMORY, Place, question
from unexposed.cards import number
from unexposed.evaluation.significance import bootstrap_interval
from unexposed.experiments.compare import METRIC
from unexposed.experiments.results import Results
from unexposed.report.tables import Table, shown

ROOT = FOLDER.parent
sys.path.append(str(ROOT / "benchmarks"))
import result_tables  # noqa: E402

BOTH = METRIC, "map@3"
IN_README = ("popularity", "mf", "bpr", "ubpr", "umf", "ubo", "ubo-frozen")
TUNED = ("mf", "bpr", "ubpr", "relmf", "umf", "ubo")
RATINGS = "Yahoo!R3, chosen by ratings"
RATED = {
    "UBO less UMF": ("ubo", "umf"),
    "UBO, learned less frozen": ("ubo", "ubo-frozen"),
    "UMF less MF": ("umf", "mf"),
    "UBO less MF": ("ubo", "mf"),
    "BPR less UBO": ("bpr", "ubo"),
}
PROTOCOL = {
    "UBO less UMF": ("ubo", "umf"),
    "UBO, frozen, less UMF": ("ubo-frozen", "umf"),
    "UBO, learned less frozen": ("ubo", "ubo-frozen"),
    "UBO less UBO at the paper's learning rate": ("ubo", "ubo-paper"),
    "UBO less JointOpt": ("ubo", "ubo-joint"),
    "UBO less MF": ("ubo", "mf"),
}
AS_PAPER = ("mf", "bpr", "umf", "ubo", "ubo-frozen")
READ_BY_CLICKS = {
    "mf": "MF",
    "umf-true": "UMF, true exposure",
    "umf-item_means": "UMF, item means of it",
}


@cache
def places(name: str, part: str = "") -> list[Place]:
    return stored.places(question(name, part))


def _read(path: str) -> Any:
    return json.loads((FOLDER / path).read_text(encoding="utf-8"))


def titled(table: Table) -> str:
    return f"**{table.title}**\n\n{markdown(table)}"


def together(*parts: str | Table) -> str:
    return "\n\n".join(markdown(part) if isinstance(part, Table) else part for part in parts)


# Real random traffic


def summary() -> str:
    """DCG@3 of some methods beside the paper's, chosen by the criterion that each log advises."""
    (coat,), (rated,) = question("real", "coat-held_out"), question("rated", "held_out")
    asked = [Column("Coat DCG@3", coat), Column("Yahoo!R3 DCG@3", rated)]
    return together(columns("results", "Results", asked, IN_README), *lacking([coat, rated]))


def real_traffic() -> str:
    """DCG@3 and MAP@3 with a tenth of the clicks held out, and DCG@3 with all of them."""
    asked, sure = [], []
    for name in ("coat", "yahoo_r3"):
        held_out, every = (question("real", f"{name}-{part}")[0] for part in ("held_", "all_"))
        title = stored.data_title(held_out.data)
        asked += [Column(f"{title} {shown(m)}", held_out, m) for m in BOTH]
        asked.append(Column(f"{title} DCG@3, all clicks", every, beside_paper=False))
        low, high = bootstrap_interval(
            held_out.values(held_out.by_truth())["ubo"].mean(axis=0), seed=0
        )
        theirs = paper_figure(PAPER[name], METRIC, "ubo")
        sure.append(f"{title} {number(low)} … {number(high)} ({theirs})")
    said = f"95 % interval of `ubo`'s DCG@3 over users: {', '.join(sure)}."
    table = columns("real", "Real random traffic", asked)
    return together(table, said, *lacking([column.of for column in asked]))


def rated() -> str:
    """Yahoo!R3 chosen by ratings: every method, what the choice moves, and who is above whom."""
    held_out, every = (question("rated", part)[0] for part in ("held_out", "all_clicks"))
    asked = [Column(shown(m), held_out, m) for m in BOTH]
    asked += [Column(f"{shown(m)}, all clicks", every, m, beside_paper=False) for m in BOTH]
    (clicks,), (ratings,) = places("real", "yahoo_r3-held_out"), places("rated", "held_out")
    (of_all,) = places("rated", "all_clicks")
    return together(
        columns("rated", "Chosen by ratings", asked),
        verdict.judged(clicks, ratings, ("DCG@3", "by `popular_half`", "by `shown`")),
        verdict.differences(ratings, RATED),
        verdict.differences(replace(of_all, short=f"{of_all.short}, all clicks"), RATED),
        *lacking([held_out, every]),
    )


def tellable() -> str:
    """The difference that each judged set can tell from chance, in a sentence."""
    said = " and ".join(
        f"{number(verdict.smallest(place, TUNED))} on {place.title}"
        for place in places("real", "held_out")
    )
    return (
        f"Two tuned methods differ by more than chance (p < .05, one test) from about {said}: "
        "1.96 standard errors over users, median over pairs of methods."
    )


def the_verdict() -> str:
    of_ratings = [replace(p, title=RATINGS, short=RATINGS) for p in places("rated", "held_out")]
    every = [*places("real", "held_out"), *of_ratings, *places("exposure")]
    return markdown(verdict.verdict(every))


def protocol() -> str:
    """Yahoo!R3 with the settings that the paper states, beside its figures."""
    (cell,), (place,) = question("protocol"), places("protocol")
    asked = [Column(shown(m), cell, m) for m in BOTH]
    table = columns("protocol", "The paper's protocol", asked)
    return together(table, verdict.differences(place, PROTOCOL), *lacking([cell]))


def chosen_by() -> str:
    """Yahoo!R3 with settings and epochs chosen by several criteria, beside the paper's figures."""
    asked = {
        "both by `shown`": question("rated", "held_out"),
        "both by `popular_half`": question("real", "yahoo_r3-held_out"),
        "settings by `popular_half`, epoch by `uniform`": question("criterion/epoch.toml"),
        "both by `uniform`": question("criterion/as_paper.toml"),
    }
    every = [Column(f"{shown(m)}: {h}", cell, m) for h, (cell,) in asked.items() for m in BOTH]
    return markdown(columns("chosen-by", "Criteria", every, AS_PAPER))


def choices() -> str:
    """Two choices of settings for Coat: what the log says of them, and what the judged set says."""
    (first,), (second,) = places("choice"), places("real", "coat-held_out")
    heads = "judged DCG@3", "5 splits", "20 splits, wider"
    by_log = study_tables.judges(_read("choice/splits.json"))
    return together(by_log, verdict.judged(first, second, heads))


# Worlds


def worlds() -> str:
    """Every method in every world, by true relevance: a table for each data set and generator."""
    asked = question("worlds")
    tables = map(titled, cell_tables.worlds(asked))
    return together(PAPER["caveats"]["amazon_cds"], *tables, *made_by(asked), *lacking(asked))


def advised() -> str:
    """A world with settings chosen by two criteria, and what its log says of criteria."""
    logs = {f"{g}, power 0.5": _read(f"advised/{g}.json") for g in ("saito", "converged")}
    (first,), (second,) = places("worlds", "amazon_cds-saito-0.5"), places("advised")
    by_two = verdict.judged(first, second, ("true DCG@3", "by `popular`", "by `wtd`"))
    return together(study_tables.criteria(logs), by_two)


def advised_by_shown() -> str:
    """MF chosen by what was shown, beside the popular order and the choices by clicks alone."""
    tables = []
    for place in places("advised/shown.toml"):
        generator = place.name.removeprefix("shown-")
        (by_clicks,) = places("worlds", f"amazon_cds-{generator}-0.5")
        heads = f"true DCG@3, {place.short}", "by `popular`", "by `shown`"
        tables.append(verdict.judged(by_clicks, place, heads))
        pair = {"MF, by `shown`, less popularity": ("mf", "popularity")}
        tables.append(verdict.differences(place, pair))
    return together(*tables)


def criteria() -> str:
    logs = {"Coat": "coat", "Yahoo!R3": "yahoo_r3"}
    found = {title: _read(f"criterion/{name}.json") for title, name in logs.items()}
    return markdown(study_tables.criteria(found))


# Studies


def study(name: str, make: Callable[[list[stored.Stored]], Table], *caveats: str) -> str:
    """The table of a study, and where its numbers came from."""
    asked = question(name)
    return together(*caveats, titled(make(asked)), *made_by(asked), *lacking(asked))


def times() -> str:
    asked = [cell for f in ("timing", "timing_fastest") for cell in question(f"timing/{f}.toml")]
    return together(titled(cell_tables.times(asked)), *made_by(asked), *lacking(asked))


def noise() -> str:
    lines = Results(FOLDER / "variance" / "results", "variance").read()
    said = cell_tables.origin("python experiments/lib/variance.py", lines)
    return together(cell_tables.noise(lines), said)


def of(name: str, make: Callable[[list[Place]], Table]) -> Callable[[], str]:
    """A table of the places of an experiment."""
    return lambda: markdown(make(places(name)))


def worth(name: str, pairs: Mapping[str, str]) -> Callable[[], str]:
    return of(name, lambda asked: verdict.worth(asked, pairs))


def measured(make: Callable[[Any], Table], name: str) -> Callable[[], str]:
    """A table made from the results of a benchmark."""
    path = ROOT / "benchmarks" / "results" / f"{name}.json"
    return lambda: markdown(make(json.loads(path.read_text(encoding="utf-8"))))


def validation_batch() -> str:
    (cell,) = question("strategies/validation_batch.toml")
    asked = [Column(shown(METRIC), cell, beside_paper=False)]
    return markdown(columns("validation-batch", "A sampled validation set", asked))


TABLES: dict[str, Callable[[], str]] = {
    "results table": summary,
    "real results": real_traffic,
    "rated results": rated,
    "tellable": tellable,
    "verdict table": the_verdict,
    "protocol results": protocol,
    "chosen by": chosen_by,
    "choices": choices,
    "worlds results": worlds,
    "advised": advised,
    "advised by shown": advised_by_shown,
    "criteria": criteria,
    "picked epochs": lambda: markdown(study_tables.epochs(_read("criterion/epoch_choice.json"))),
    "ablation": of("exposure", verdict.exposure),
    "shares": of("exposure", verdict.share),
    "clicks table": of("exposure", lambda p: verdict.clicks_and_truth(p, READ_BY_CLICKS)),
    "amazon": of("exposure/amazon.toml", verdict.exposure),
    "amazon shares": of("exposure/amazon.toml", verdict.share),
    "amazon verdict": of("exposure/amazon.toml", verdict.verdict),
    "impressions table": worth("shown", verdict.IMPRESSIONS),
    "impressions share": lambda: verdict.shares(places("shown")),
    "traffic table": worth("shown", verdict.TRAFFIC),
    "followed table": worth("shown/tuned.toml", verdict.IMPRESSIONS),
    "coat traffic table": worth("shown/coat.toml", verdict.COAT),
    "shown levels": of("shown", verdict.levels),
    "strategies results": lambda: study("strategies", cell_tables.strategies),
    "trend results": lambda: study("trend", cell_tables.trend),
    "variance results": noise,
    "timing results": times,
    "validation batch table": validation_batch,
    "cpu table": measured(result_tables.cpu, "engine_cpu"),
    "share table": measured(result_tables.share, "epoch_share"),
    "step table": measured(result_tables.step, "step"),
    "estimator table": measured(result_tables.estimator, "estimator"),
    "card table": measured(result_tables.card, "engine_cuda"),
    "ranks on cores table": measured(result_tables.on_cores, "scaling"),
    "whole log table": measured(result_tables.whole_log, "divided_log"),
    "ranks on a card table": measured(result_tables.on_a_card, "scaling_cuda"),
    "sharing a card table": measured(result_tables.sharing_a_card, "scaling_cuda"),
    "fold-in table": measured(result_tables.fold_in, "fold_in_yahoo"),
    "update table": measured(result_tables.update, "update_ml100k"),
    "lists table": measured(result_tables.lists, "recommend"),
    "memory table": measured(result_tables.memory, "recommend"),
    "service table": measured(result_tables.service, "serve"),
}
PLACE = re.compile(r"(<!-- (\w[\w -]*) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)


def filled(text: str, tables: Mapping[str, Callable[[], str]] = TABLES) -> str:
    """Replace what stands between <!-- NAME --> and <!-- end of NAME -->, for every table."""

    def block(found: re.Match[str]) -> str:
        begin, name, end = found.groups()
        return f"{begin}{tables[name]()}\n{end}" if name in tables else found[0]

    return PLACE.sub(block, text)


def pages() -> dict[Path, str]:
    """Every page that holds a table, as it should be."""
    paths = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")]
    paths += FOLDER.glob("*/README.md")
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(paths)}
    return {path: filled(text) for path, text in texts.items() if PLACE.search(text)}


def main() -> None:
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    MEMORY.write()


if __name__ == "__main__":
    main()

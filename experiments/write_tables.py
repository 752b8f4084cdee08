"""Fill the tables of the docs from the committed results: python experiments/write_tables.py

A table stands between <!-- NAME --> and <!-- end of NAME -->; a test fails when one is stale.
"""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
PAPER = tomllib.loads((HERE / "paper.toml").read_text(encoding="utf-8"))


def result(name: str) -> Any:
    return json.loads((HERE / "results" / f"{name}.json").read_text(encoding="utf-8"))


def figure(mean: float, sd: float) -> str:
    return f"{mean:.3f} ± {sd:.3f}".replace("0.", ".")


def comparison_table(document: dict[str, Any], paper: dict[str, Any] | None = None) -> str:
    """Methods by rows: DCG@3 and MAP@3, the paper's beside ours, and the test against the best."""
    paper = paper or {}
    heads = ["method", "DCG@3"] + ["paper"] * bool(paper) + ["MAP@3"] + ["paper"] * bool(paper)
    heads += ["below the best DCG@3 by", "p (Holm)"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in document["results"]:
        cells = [f"`{row['method']}`"]
        for metric, key in (("dcg@3", "dcg3"), ("map@3", "map3")):
            cells.append(figure(row["metrics"][metric]["mean"], row["metrics"][metric]["sd"]))
            if paper:
                theirs = paper[key].get(row["method"])
                cells.append(figure(*theirs) if theirs else "–")
        best = row["metrics"]["dcg@3"]
        cells += [f"{abs(best['below_best']):.3f}".replace("0.", "."), f"{best['p_holm']:.3f}"]
        lines.append("| " + " | ".join(cells) + " |")
    users, seeds = document["users"], document["seeds"]
    lines += [
        "",
        f"Protocol `{document['protocol']}`, {users:,} users, mean ± sd of {seeds} seeds.",
    ]
    return "\n".join(lines)


def card_table(document: dict[str, Any]) -> str:
    """What the CUDA engine reached, against its bars."""
    lines = [
        f"{document['card']}, torch {document['torch']}; seconds are medians of the repeats.",
        "",
        "| | batch | seconds an epoch (least … most) | million samples a second | bar |",
        "|---|---|---|---|---|",
    ]
    for row in document["figures"]:
        seconds = sorted(row["seconds"])
        lines.append(
            f"| {row['name']} | {row['batch_size']:,} | {row['median']:.4f} "
            f"({seconds[0]:.4f} … {seconds[-1]:.4f}) | {row['samples_a_second'] / 1e6:,.0f} "
            f"| {row['bar'] or '–'} |"
        )
    return "\n".join(lines)


def cpu_table(document: dict[str, Any]) -> str:
    """What the CPU engine reached, against its bars."""
    clicks, load = document["clicks"], document["load_average"][0]
    lines = [
        f"{document['data']}, {clicks:,} clicks, dim 50, batch 1024; load average {load:.1f}.",
        "",
        "| | bar | median | least | greatest |",
        "|---|---|---|---|---|",
    ]
    for row in document["table"]:
        cells = [f"{row[key]:.2f}" for key in ("median", "least", "greatest")]
        lines.append(f"| {row['what']} | {row['bar'] or '–'} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def share_table(document: dict[str, Any]) -> str:
    """Milliseconds of an epoch by part, and the share outside the kernel."""
    parts = list(document["methods"]["mf"]["seconds"])
    lines = [
        "| | " + " | ".join(f"{part}, ms" for part in parts) + " | share outside the kernel |",
        "|---" * (len(parts) + 2) + "|",
    ]
    for method, row in document["methods"].items():
        cells = [f"{1000 * row['seconds'][part]['median']:.1f}" for part in parts]
        share = row["share_outside"]
        spread = f"{share['median']:.0%} ({share['least']:.0%} … {share['greatest']:.0%})"
        lines.append(f"| `{method}` | " + " | ".join([*cells, spread]) + " |")
    return "\n".join(lines)


def adam_table(rows: list[dict[str, Any]]) -> str:
    """DCG@3 under both optimisers, and the paired test over users."""
    lines = ["| | touched rows | dense | difference | p |", "|---|---|---|---|---|"]
    for row in rows:
        lines.append(
            f"| {row['dataset']}, `{row['method']}` | {figure(*row['rows'])} "
            f"| {figure(*row['dense'])} | {row['difference']:+.3f} | {row['p']:.3f} |"
        )
    return "\n".join(lines)


TABLES = {
    "coat table": ("methods.md", lambda: comparison_table(result("coat_defaults"), PAPER["coat"])),
    "strategies table": ("methods.md", lambda: comparison_table(result("coat_strategies"))),
    "fast strategies table": (
        "methods.md",
        lambda: comparison_table(result("coat_strategies_fast")),
    ),
    "yahoo table": (
        "methods.md",
        lambda: comparison_table(result("yahoo_defaults_cuda"), PAPER["yahoo"]),
    ),
    "cpu table": ("engine.md", lambda: cpu_table(result("engine_cpu"))),
    "share table": ("engine.md", lambda: share_table(result("epoch_share"))),
    "adam table": ("engine.md", lambda: adam_table(result("row_adam_coat"))),
    "card table": ("engine.md", lambda: card_table(result("engine_cuda"))),
}


def filled(text: str, name: str, table: str) -> str:
    pattern = rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)"
    new, found = re.subn(pattern, lambda m: f"{m[1]}{table}\n{m[2]}", text, flags=re.DOTALL)
    if not found:
        raise SystemExit(f"no place for {name!r}")
    return new


def main() -> None:
    for name, (page, table) in TABLES.items():
        path = DOCS / page
        path.write_text(filled(path.read_text(encoding="utf-8"), name, table()), encoding="utf-8")


if __name__ == "__main__":
    main()

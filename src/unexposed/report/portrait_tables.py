"""The tables and sentences of a model's page, from the plain data of its portrait."""

from typing import Any

from unexposed.cards import NONE, number, signed
from unexposed.evaluation.describe import headline
from unexposed.ranking.verdict import RIVAL
from unexposed.report.tables import Cell, Table, cells, seconds, setting_value, shown


def lead(data: dict[str, Any]) -> list[str]:
    """What a person who knows the catalogue learns in a minute."""
    sentences = [_about_log(data["log"]), _about_training(data)]
    relations = data["relations"]
    if relations["never_shown"] is not None:
        sentences.append(
            f"Under this model {relations['never_shown']:.0%} of the pairs without a click were "
            f"never shown{_by_stratum(relations)}, so that their missing click says nothing. No "
            "log without impressions can confirm that."
        )
    if data["method"] != RIVAL:  # its lists are the popular list by definition
        sentences.append(_about_lists(data["lists"]))
    if data["judged"]:
        sentences.append(_about_judged(data["judged"]))
    return sentences


def _about_log(log: dict[str, Any]) -> str:
    return (
        f"The log holds {log['clicks']:,} clicks of {log['users']:,} users on {log['items']:,} "
        f"items; the most clicked tenth of the items got {log['share_of_top_tenth']:.0%} of them."
    )


def _about_training(data: dict[str, Any]) -> str:
    facts = data["facts"]
    if "best_epoch" not in facts:
        return f"The method is {data['method']}, which does not train by epochs."
    last = facts["best_epoch"] == facts["epochs_run"] and bool(facts.get("held_out"))
    every = facts.get("refitted_on")
    return (
        f"{data['method']} was trained for {facts['epochs_run']} epochs in "
        f"{seconds(facts['seconds'])} ({facts['ended']}); epoch {facts['best_epoch']} was "
        + (f"best, and as many made the model from all {every:,} clicks" if every else "kept")
        + (". It was the last: more epochs may do better." if last else ".")
    )


def _by_stratum(relations: dict[str, Any]) -> str:
    shares = relations["never_shown_by_stratum"]
    if relations["exposure_is_assumed"]:  # rare items are shown less by assumption
        return ""
    if shares.get("head") is None or shares.get("tail") is None:
        return ""
    return f" ({shares['head']:.0%} for head items, {shares['tail']:.0%} for tail items)"


def _about_lists(lists: dict[str, Any]) -> str:
    model, popular = lists["model"], lists["popular"]
    tail = [f"{strata['tail'] or 0:.0%}" for strata in (lists["log_strata"], model["strata"])]
    return (
        f"Its lists of {lists['k']} for {lists['users']:,} sampled users hold "
        f"{model['coverage']:.0%} of the catalogue, the popular list {popular['coverage']:.0%}; "
        f"{lists['shared']:.0%} of a list is on the popular one, too. Tail items, which got "
        f"{tail[0]} of the clicks, make up {tail[1]} of its lists."
    )


def _about_judged(judged: dict[str, Any]) -> str:
    metrics = judged["metrics"]
    leading = headline(metrics)
    means = {name: part["metrics"][leading] for name, part in judged["by_popularity"].items()}
    parts = ", ".join(f"{number(mean)} on {name} items" for name, mean in means.items())
    overall = number(metrics[leading]["mean"])
    users = f"{judged['users']:,} users"
    return f"On judged items its {shown(leading)} is {overall} over {users}: {parts}."


def lists(data: dict[str, Any]) -> Table:
    """The model's lists beside the popular list."""
    rows = []
    for title, key in (("this model", "model"), ("the popular list", "popular")):
        about = data[key]
        clicks = NONE if about["mean_clicks"] is None else f"{about['mean_clicks']:,.0f}"
        shares = (f"{share or 0:.0%}" for share in about["strata"].values())
        coverage = f"{about['coverage']:.1%}"
        rows.append(cells(title, coverage, number(about["gini"]), clicks, *shares))
    heads = ["", "share of the catalogue", "Gini", "mean clicks of an item", *data["log_strata"]]
    title = f"Lists of {data['k']} for {data['users']:,} sampled users"
    note = "Head, middle and tail items hold about a third of the clicks each."
    return Table("lists", title, heads, rows, [note])


def lifted(rows: list[dict[str, Any]], name: str, title: str) -> Table:
    """Items and how often they are recommended, beside the popular list."""
    heads = ["item", "clicks", "place by clicks", "in lists", "in popular lists"]
    body = [
        cells(
            *(row["item"], f"{row['clicks']:,}", f"{row['place']:,}"),
            *(f"{row[share]:.0%}" for share in ("recommended", "popular")),
        )
        for row in rows
    ]
    return Table(name, title, heads, body)


def judged(data: dict[str, Any]) -> Table:
    """Every metric with its interval, by popularity and by exposure of the relevant items."""
    parts, exposed = data["by_popularity"], data.get("by_exposure", {})
    beside = data.get("beside", {}).get(RIVAL, {})
    rows = []
    for metric, value in data["metrics"].items():
        interval = " … ".join(map(number, value["ci95"]))
        every = (*parts.values(), *exposed.values())
        by_part = (number(part["metrics"][metric]) for part in every)
        rival = [_beside(beside.get(metric))] if beside else []
        mean = Cell(number(value["mean"]), aside=interval)
        rows.append(cells(shown(metric), mean, *rival, *by_part))
    sizes = ", ".join(f"{part['items']:,} {name}" for name, part in parts.items())
    note = (
        f"Protocol `{data['protocol']}`, {data['users']:,} users; in brackets the 95 % "
        f"interval over users. There are {sizes} items."
    )
    notes = [note]
    if exposed:
        notes.append(
            "Seldom, sometimes and often shown: thirds of the relevant pairs, by the exposure of "
            "the item to the user."
        )
    heads = [
        "",
        "all",
        *(["popular list"] if beside else []),
        *parts,
        *(f"{name} shown" for name in exposed),
    ]
    return Table("judged", "On judged items", heads, rows, notes)


def _beside(gain: dict[str, Any] | None) -> Cell:
    """The popular list's mean, and what the model has more."""
    if gain is None:
        return Cell(NONE)
    return Cell(number(gain[RIVAL]), aside=f"model {signed(gain['difference'])}")


def clicked(user: dict[str, Any], at: int) -> Table:
    rows = [cells(row["item"], f"{row['clicks']:,}") for row in user["clicked"]]
    notes = []
    if user["clicks"] > len(rows):
        notes = [f"{len(rows)} of {user['clicks']:,}, from the most to the least popular."]
    return Table(f"clicked-{at}", "Clicked", ["item", "its clicks"], rows, notes)


def recommended(user: dict[str, Any], at: int) -> Table:
    """The user's list: relevance and exposure side by side, and the most similar clicked item."""
    first = user["recommended"][0] if user["recommended"] else {}
    columns = ["relevance"] if first.get("relevance") is not None else ["score"]
    columns += ["exposure"] * (first.get("exposure") is not None)
    has_like = first.get("like") is not None
    rows = []
    for row in user["recommended"]:
        mark = " *" if row["popular"] else ""
        item = Cell(row["item"] + mark, aside=f"like {row['like']}" if has_like else "")
        rows.append(cells(item, *(number(row[name]) for name in columns), f"{row['clicks']:,}"))
    popular = any(row["popular"] for row in user["recommended"])
    notes = ["Like: the most similar of the clicked items."] if has_like else []
    notes += ["* also on the user's popular list."] if popular else []
    heads = ["item", *columns, "its clicks"]
    return Table(f"recommended-{at}", "Recommended", heads, rows, notes)


def settings(data: dict[str, Any]) -> Table:
    known = {k: v for k, v in data["facts"].items() if k not in ("losses", "held_out")}
    rows = [
        cells(name, setting_value(value)) for name, value in {**data["settings"], **known}.items()
    ]
    return Table("settings", "Settings and facts", ["", "value"], rows, words=2)

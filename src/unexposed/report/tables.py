"""The tables and sentences of a model's page, from the plain data of its portrait."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from unexposed.cards import NONE, number, signed
from unexposed.evaluation.describe import headline
from unexposed.ranking.verdict import READINGS, RIVAL, RIVALS, Finding, K


@dataclass(frozen=True)
class Cell:
    """Text of a cell as people read it, never markup."""

    text: str
    bold: bool = False
    code: bool = False
    aside: str = ""  # smaller, in brackets after the text


@dataclass(frozen=True)
class Table:
    """Heads, rows of cells, and notes beneath."""

    name: str  # short and without spaces: the anchor in HTML
    title: str
    heads: list[str]
    rows: list[list[Cell]]
    notes: list[str] = field(default_factory=list)
    words: int = 1  # how many columns from the left hold words and not numbers


def code(text: str) -> Cell:
    return Cell(text, code=True)


def cells(*parts: Cell | str) -> list[Cell]:
    """A row of cells, plain where only text is given."""
    return [part if isinstance(part, Cell) else Cell(part) for part in parts]


def spread(mean: float | None, sd: float | None) -> str:
    """Mean ± standard deviation."""
    return NONE if mean is None else f"{number(mean)} ± {number(sd)}"


def shown(metric: str) -> str:
    """A metric's name as people write it."""
    words = {"recall": "recall", "precision": "precision", "hit": "hit", "rate": "rate"}
    name, at, k = metric.partition("@")
    spelt = " ".join(words.get(word, word.upper()) for word in name.split("_"))
    return spelt[0].upper() + spelt[1:] + at + k


def seconds(value: float | None) -> str:
    """A length of time in a unit that suits it."""
    if value is None:
        return NONE
    for unit, size in (("h", 3600), ("min", 60)):
        if value >= 2 * size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.1f} s" if value >= 1 else f"{1000 * value:.3g} ms"


def setting_value(value: Any) -> str:
    """A setting's value as an experiment file writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


# The verdict

WORDS: dict[Finding, tuple[str, str]] = {
    "above": ("above", "more than chance"),
    "below": ("below", "more than chance"),
    "chance": ("no clear difference", "no more than chance"),
}


class Head(NamedTuple):
    """The verdict in a few words, and what to do about it."""

    line: str
    advice: str


NOTHING = Head("This is the popular list, which other models are compared with", "")
UNKNOWN = Head(
    "No verdict: nothing was held out to compare it with the popular list",
    "No clicks were held out when this model was trained, or too few, or an earlier version "
    "trained it.",
)
NOT_YET = "before judged pairs or a test with real users show a gain."


def verdict_head(data: dict[str, Any]) -> Head:
    """The verdict by the findings of all readings: first beside the popular list, then `mf`."""
    if data["method"] == RIVAL:
        return NOTHING
    popular, mf = (_findings(data["verdict"]["beside"].get(rival, {})) for rival in RIVALS)
    if not popular:
        return UNKNOWN
    if "below" in popular:
        return Head(
            f"Warning: it loses to the popular list{_share(popular, 'below')}",
            f"Do not put it into production {NOT_YET}",
        )
    if "below" in mf:
        return Head(
            f"Warning: it loses to mf{_share(mf, 'below')}",
            "mf is simpler: put mf into production rather than this model, unless a test with real "
            "users shows a gain.",
        )
    if "above" not in popular:
        return Head(
            "No sign that it is better than the popular list", f"Keep what you have {NOT_YET}"
        )
    line = f"Better than the popular list{_share(popular, 'above')}"
    if "above" in mf:
        line += f" and than mf{_share(mf, 'above')}"
    elif mf:
        line += ", but not clearly better than mf"
    if "chance" in popular:
        return Head(line, "A candidate for a test with real users, and no more than that yet.")
    return Head(
        line,
        "A candidate for production: test it with real users beside what they are shown today.",
    )


def _findings(beside: dict[str, Any]) -> list[Finding]:
    return [gain["finding"] for where in beside.values() for gain in where.values()]


def _share(found: list[Finding], finding: Finding) -> str:
    """How many readings found this, unless all did."""
    n = found.count(finding)
    return "" if n == len(found) else f" by {n} of {len(found)} readings"


def verdict(data: dict[str, Any]) -> list[Table]:
    """The model beside each rival by every reading."""
    beside = data["verdict"]["beside"]
    return [_beside_rival(data["method"], rival, said) for rival, said in beside.items()]


def verdict_notes(data: dict[str, Any]) -> list[str]:
    """How to read the tables of the verdict, a sentence each."""
    beside = data["verdict"]["beside"]
    said = ["In brackets the 95 % interval over users; chance: p > .05."] if beside else []
    if any(one["held_out"] for one in beside.values()):
        said.append(
            f"Held-out clicks are a part of the log that training did not see; NDCG@{K} ranks them "
            "among all items that the user has not clicked: 1 is best. They chose the epoch as "
            "well, so they flatter the model a little."
        )
    if data["judged"]:
        said.append("Judged pairs are those of the file given, by its protocol.")
    if len(beside) == 1 and data["method"] not in RIVALS:
        said.append("`unexposed compare` shows `mf` and other methods beside both.")
    return said


def _beside_rival(method: str, rival: str, said: dict[str, Any]) -> Table:
    gains = [("held-out clicks", READINGS[name], gain) for name, gain in said["held_out"].items()]
    gains += [("judged pairs", shown(name), gain) for name, gain in said["judged"].items()]
    rows = [
        cells(
            _reading(where, reading, gain["finding"]),
            *(number(gain["mean"]), number(gain[rival])),
            Cell(signed(gain["difference"]), aside=" … ".join(map(number, gain["ci95"]))),
        )
        for where, reading, gain in gains
    ]
    called = RIVALS[rival].removeprefix("the ").removesuffix(" list")
    name = "gains" if rival == RIVAL else f"gains-{rival}"
    return Table(name, f"Beside {RIVALS[rival]}", ["", method, called, "difference"], rows, [])


def _reading(where: str, reading: str, finding: Finding) -> Cell:
    """What a row of the verdict says in words, so that a narrow page need not be scrolled."""
    how, chance = WORDS[finding]
    return Cell(f"{where}: {how}", bold=finding != "chance", aside=f"{reading}; {chance}")


# The rest of the page


def lead(data: dict[str, Any]) -> list[str]:
    """What a person who knows the catalogue learns in a minute."""
    sentences = [_of_log(data["log"]), _of_training(data)]
    relations = data["relations"]
    if relations["never_shown"] is not None:
        sentences.append(
            f"Under this model {relations['never_shown']:.0%} of the pairs without a click were "
            f"never shown{_by_stratum(relations)}, so that their missing click says nothing. No "
            "log without impressions can confirm that."
        )
    if data["method"] != RIVAL:  # its lists are the popular list by definition
        sentences.append(_of_lists(data["lists"]))
    if data["judged"]:
        sentences.append(_of_judged(data["judged"]))
    return sentences


def _of_log(log: dict[str, Any]) -> str:
    return (
        f"The log holds {log['clicks']:,} clicks of {log['users']:,} users on {log['items']:,} "
        f"items; the most clicked tenth of the items got {log['share_of_top_tenth']:.0%} of them."
    )


def _of_training(data: dict[str, Any]) -> str:
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


def _of_lists(lists: dict[str, Any]) -> str:
    model, popular = lists["model"], lists["popular"]
    tail = [f"{strata['tail'] or 0:.0%}" for strata in (lists["log_strata"], model["strata"])]
    return (
        f"Its lists of {lists['k']} for {lists['users']:,} sampled users hold "
        f"{model['coverage']:.0%} of the catalogue, the popular list {popular['coverage']:.0%}; "
        f"{lists['shared']:.0%} of a list is on the popular one, too. Tail items, which got "
        f"{tail[0]} of the clicks, make up {tail[1]} of its lists."
    )


def _of_judged(judged: dict[str, Any]) -> str:
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

"""Compare methods: train each on the same splits, one for each seed, and evaluate it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed import progress as show
from unexposed import settings as checks
from unexposed.cards import Card, HasCard, as_text, counted, number
from unexposed.data.clicks import Clicks
from unexposed.data.labelled import Judgements, Traffic
from unexposed.data.pairs import pair_keys
from unexposed.data.split import Split, split
from unexposed.data.write import Library, as_frame
from unexposed.errors import InputError, Interrupted
from unexposed.evaluation import significance as statistics
from unexposed.evaluation.protocols import Protocol, evaluate
from unexposed.model.model import Model
from unexposed.model.recommender import Recommender
from unexposed.ranking.held_out import Rated, dissent
from unexposed.training.side import Side

Splits = Callable[[int], Split]  # seed → split


@dataclass(frozen=True, eq=False)
class Result:
    """The values of one method: for each metric an array (seeds, users)."""

    label: str
    method: Recommender
    values: dict[str, NDArray[np.float64]]
    seconds: float  # of training, over all seeds
    criteria: Rated | None = None  # held-out quality by each criterion, mean over seeds


@dataclass(frozen=True, eq=False)
class Comparison(HasCard):
    """The results of all methods under one protocol."""

    protocol: Protocol
    users: int
    seeds: int
    results: list[Result]
    given: Mapping[str, str] = field(default_factory=dict)  # label → what it has beside clicks

    @property
    def rivals(self) -> list[Result]:
        """The results that compete: methods that learn from clicks alone."""
        return [r for r in self.results if r.label not in self.given]

    def against_best(self, metric: str) -> dict[str, statistics.Difference]:
        """Test each rival against the best by this metric, paired over users, Holm-corrected."""
        values = {r.label: r.values[metric] for r in self.rivals}
        return statistics.against_best(values, seed=0) if values else {}

    def dissent(self, criterion: str) -> dict[str, str]:
        """The method that each other criterion prefers to this one's, of methods with epochs."""
        rated = {r.label: r.criteria for r in self.results if r.criteria}
        if not rated:
            return {}
        return dissent(rated, max(rated, key=lambda label: rated[label][criterion][0]))

    def frame(self, library: Library = "polars") -> Any:
        """A row for each method and metric, with its 95 % interval over users.

        `p_holm` tests the difference to the best method, paired over users, Holm-corrected.
        """
        import polars as pl

        rows = [
            {
                "method": result["method"],
                "metric": metric,
                **{name: found[name] for name in ("mean", "sd")},
                **dict(zip(("low", "high"), found["ci95"], strict=True)),
                **{name: found[name] for name in ("below_best", "p_holm")},
            }
            for result in self._document["results"]
            for metric, found in result["metrics"].items()
        ]
        return as_frame(pl.DataFrame(rows), library)

    def __repr__(self) -> str:
        return f"Comparison({self._line()})"

    def __str__(self) -> str:
        return as_text(self.card())

    def card(self) -> Card:
        """A row for each method: mean ± sd over seeds, and † where it is significantly below."""
        return card_of(self._document, title=f"Comparison: {self._line()}")

    def _line(self) -> str:
        metric = next(iter(self.protocol.metrics))
        best = max(self.results, key=lambda r: float(r.values[metric].mean()))
        methods, seeds = counted(len(self.results), "method"), counted(self.seeds, "seed")
        sizes = f"{methods} by {self.protocol.name}, {seeds}"
        return f"{sizes}, {self.users:,} users; best {metric}: {best.label}"

    @cached_property
    def _document(self) -> dict[str, Any]:
        return self.document()

    def document(self) -> dict[str, Any]:
        """Turn the comparison into plain data, for JSON."""
        against = {metric: self.against_best(metric) for metric in self.protocol.metrics}
        return {
            "protocol": self.protocol.name,
            "users": self.users,
            "seeds": self.seeds,
            "results": [
                {
                    "method": r.label,
                    **({"given": self.given[r.label]} if r.label in self.given else {}),
                    "settings": checks.values(r.method),
                    "metrics": {
                        metric: _summary(values, against[metric].get(r.label))
                        for metric, values in r.values.items()
                    },
                    "seconds": r.seconds,
                    **({"criteria": r.criteria} if r.criteria else {}),
                }
                for r in self.results
            ],
        }


def card_of(document: dict[str, Any], *, title: str) -> Card:
    """The table of a comparison's document."""
    results, several = document["results"], document["seeds"] > 1
    rows = []
    for row in results:
        cells = []
        for own in row["metrics"].values():
            mean = number(own["mean"])
            mark = "†" if own.get("p_holm", 1) <= statistics.SIGNIFICANCE else " "
            cells.append(f"{mean} ± {number(own['sd'])} {mark}" if several else f"{mean} {mark}")
        label = f"{row['method']} ({row['given']})" if "given" in row else row["method"]
        rows.append([label, *cells, f"{row['seconds']:.1f}"])
    seeds = f"mean ± sd of {document['seeds']} seeds, " if several else ""
    apart = "; rows given more than clicks, named in brackets, do not compete"
    note = (
        f"{document['protocol']}: {document['users']:,} users, {seeds}† below the best, p < .05 "
        f"(sign-flip test over users, Holm){apart if any('given' in r for r in results) else ''}"
    )
    metrics = results[0]["metrics"] if results else ()
    return Card(title, {}, ["method", *metrics, "seconds"], rows, note=note)


def _summary(values: NDArray[np.float64], against: statistics.Difference | None) -> dict[str, Any]:
    mean, sd = statistics.mean_sd(values)
    low, high = statistics.bootstrap_interval(values.mean(axis=0), seed=0)
    found = {"mean": mean, "sd": sd, "ci95": [low, high]}
    if against is None:  # it does not compete
        return found
    below = 0.0 - against.difference  # no negative zero
    return found | {"below_best": below, "p_holm": against.p_holm}


def compare(
    splits: Splits,
    methods: dict[str, Recommender],
    *,
    by: Protocol,
    seeds: int,
    progress: show.Progress,
    side: Side | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> Comparison:
    """Train every method on every seed's split and evaluate it by the protocol.

    Every method is given the parts of `side` that it accepts. Ctrl-C raises `Interrupted` with the
    comparison of the methods whose seeds are all done.
    """
    if by.candidates == "logged":
        raise InputError(f"protocol {by.name!r} is for a model and a log: use evaluate")
    if not isinstance(seeds, int) or seeds < 1:
        raise InputError(f"seeds must be at least 1, got {seeds}")
    made = [splits(seed) for seed in range(seeds)]
    side = side or Side()
    for part in made:
        refuse_shared(side.traffic, part.judged)
    check_use(methods, side, say)
    results: list[Result] = []
    users = 0
    with progress as told:
        for label, recommender in methods.items():
            try:
                result, users = _run(label, recommender, made, by, told, side)
            except KeyboardInterrupt:
                if not results:
                    raise
                say(f"interrupted during {label}: the table holds the methods finished before")
                raise Interrupted(Comparison(by, users, seeds, results)) from None
            results.append(result)
    return Comparison(by, users, seeds, results)


def refuse_shared(traffic: Traffic | None, judged: Judgements) -> None:
    """Refuse random traffic that tells judged labels."""
    if traffic is None:
        return
    judged_keys = pair_keys(judged.users, judged.items, len(judged.item_ids))
    shared = int(np.isin(judged_keys, traffic.keys).sum())
    if shared:
        raise InputError(
            f"the random traffic and the judged pairs share {shared:,} pairs, whose labels would "
            "judge what was trained on them: leave these out of one"
        )


def _run(
    label: str,
    recommender: Recommender,
    splits: list[Split],
    by: Protocol,
    told: show.Progress,
    side: Side,
) -> tuple[Result, int]:
    rows: dict[str, list[NDArray[np.float64]]] = {metric: [] for metric in by.metrics}
    total = 0.0
    users: NDArray[np.int32] | None = None
    said: dict[str, list[list[float]]] = {}
    for seed, parts in enumerate(splits):
        labelled = Labelled(told, f"{label}, seed {seed}")
        given = side.only(recommender.accepts)
        model, seconds = train(recommender, parts, seed=seed, progress=labelled, side=given)
        total += seconds
        for name, value in model.facts.get("criteria", {}).items():
            said.setdefault(name, []).append(value)
        evaluation = evaluate(model, parts.judged, by)
        if users is not None and not np.array_equal(users, evaluation.users):
            raise InputError("every seed's split must evaluate the same users")
        users = evaluation.users
        for metric, values in evaluation.values.items():
            rows[metric].append(values)
    assert users is not None
    by_metric = {metric: np.stack(by_seed) for metric, by_seed in rows.items()}
    criteria = {name: np.mean(values, axis=0).tolist() for name, values in said.items()}
    return Result(label, recommender, by_metric, total, criteria or None), len(users)


def check_use(methods: Mapping[str, Recommender], side: Side, say: Callable[[str], object]) -> None:
    """Refuse inputs that no method here can use; say which methods do without them.

    What was passed over teaches nothing, so no method does without it.
    """
    for part in sorted(side.given() - {"passed_over"}):
        without = [label for label, method in methods.items() if part not in method.accepts]
        if len(without) == len(methods):
            raise InputError(f"{', '.join(without)} cannot use {part}: leave it out")
        if without:
            say(f"{', '.join(without)} cannot use {part}, and learn from clicks alone")


def train(
    recommender: Recommender,
    split: Split,
    *,
    seed: int,
    progress: show.Progress,
    side: Side | None = None,
) -> tuple[Model, float]:
    """Train a model on the split's clicks; return it with the seconds without compilation."""
    started = time.monotonic()
    model = recommender.fit(split.train, split.held_out, seed=seed, side=side, progress=progress)
    return model, float(model.facts.get("seconds", time.monotonic() - started))


class Labelled(show.Silent):
    """Forward progress under another label."""

    def __init__(self, told: show.Progress, label: str) -> None:
        self._told, self._label = told, label

    def __call__(self, tick: show.Tick) -> None:
        self._told(replace(tick, label=self._label))

    def note(self, text: str) -> None:
        self._told.note(text)


def split_clicks(
    clicks: Clicks, judged: Judgements, by: Protocol, *, how: str | None = None
) -> Splits:
    """Split a log with given judgements: only the held-out clicks change by seed.

    They are a random share, as the protocol says, unless a split is named (see `ux.split`).
    """

    def parts(seed: int) -> Split:
        if how is not None:
            return Split(*split(clicks, how, seed=seed), judged)
        train, held_out = clicks.hold_out(fraction=by.held_out, seed=seed)
        return Split(train, held_out, judged)

    return parts


def judged_by_later(clicks: Clicks, how: str, by: Protocol) -> tuple[Clicks, Judgements]:
    """The clicks to learn from, and those that a split such as `time:0.8` holds out as judgements.

    They are the same for every seed.
    """
    if not by.takes_clicks:
        raise InputError(
            f"protocol {by.name!r} cannot judge by clicks alone, which say nothing of what was "
            "disliked: give --judged, or a protocol that ranks the catalogue (--protocol catalogue)"
        )
    earlier, later = split(clicks, how, seed=0)
    return earlier, Judgements.from_clicks(later)

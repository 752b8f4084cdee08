"""Compare methods: train each on the same splits, one for each seed, and evaluate it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed import progress as show
from unexposed import settings as checks
from unexposed.cards import Card, Shown, counted
from unexposed.data.clicks import Clicks
from unexposed.data.labelled import Judgements, Traffic
from unexposed.data.pairs import pair_keys
from unexposed.data.split import Split, split
from unexposed.data.write import Library, as_frame
from unexposed.errors import InputError, did_you_mean
from unexposed.evaluation import significance as statistics
from unexposed.evaluation.protocols import Protocol, evaluate
from unexposed.methods import make, method
from unexposed.model.model import Model
from unexposed.model.recommender import Recommender
from unexposed.ranking.held_out import Rated, dissent
from unexposed.ranking.held_out import criterion as criterion_named
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
class Comparison(Shown):
    """The results of all methods under one protocol."""

    protocol: Protocol
    users: int
    seeds: int
    results: list[Result]
    interrupted: bool = False
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

    def card(self) -> Card:
        """The methods by the first metric, the best first, and the others beside it."""
        metrics = list(self.protocol.metrics)
        rows = []
        for result in sorted(
            self._document["results"], key=lambda r: -r["metrics"][metrics[0]]["mean"]
        ):
            found = result["metrics"]
            (low, high), p = found[metrics[0]]["ci95"], found[metrics[0]]["p_holm"]
            others = [found[metric]["mean"] for metric in metrics[1:]]
            best = found[metrics[0]]["below_best"] == 0
            mean = found[metrics[0]]["mean"]
            rows.append(
                [result["method"], mean, f"{low:.4g} – {high:.4g}", None if best else p, *others]
            )
        heads = ["method", metrics[0], "95 % interval", "p to the best", *metrics[1:]]
        note = "means over users and seeds; p by a sign-flip test over users, Holm-corrected"
        return Card(f"Comparison: {self._line()}", {}, heads, rows, note=note)

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
    say: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Train every method on every seed's split and evaluate it by the protocol.

    Every method is given the parts of `side` that it accepts. Ctrl-C keeps the methods whose
    seeds are all done.
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
    interrupted = False
    with progress as told:
        for label, recommender in methods.items():
            try:
                result, users = _run(label, recommender, made, by, told, side)
            except KeyboardInterrupt:
                if not results:
                    raise
                say(f"interrupted during {label}: the table holds the methods finished before")
                interrupted = True
                break
            results.append(result)
    return Comparison(by, users, seeds, results, interrupted)


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


def check_use(methods: Mapping[str, Recommender], side: Side, say: Callable[[str], None]) -> None:
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


def parse_methods(
    names: str, assignments: Sequence[str], *, criterion: str | None = None
) -> dict[str, Recommender]:
    """Make methods from the text of a command line, each with the settings it has.

    A method is a name, or a name with settings: `ubo:strategy=joint:dim=20`. An assignment is
    `dim=64` for every method that has the setting, or `ubo.dim=64` for one. The criterion is of
    every method that has one and is not assigned another.
    """
    if criterion is not None:
        criterion_named(criterion)
    labels = [name.strip() for name in names.split(",") if name.strip()]
    if not labels:
        raise InputError("no method given; name some, for example --methods popularity,mf,bpr")
    own: dict[str, dict[str, Any]] = {}
    for label in labels:
        name, *texts = label.split(":")
        cls = method(name)
        pairs = [_assignment(text) for text in texts]
        own[label] = {key: checks.parse_value(name, cls, key, value) for key, value in pairs}
    for text in assignments:
        target, (key, value) = None, _assignment(text)
        if "." in key:
            target, key = key.split(".", 1)
        _assign(own, target, key, value)
    made = {}
    for label, given in own.items():
        name = label.split(":")[0]
        has_one = criterion is not None and "criterion" in checks.known(method(name))
        made[label] = make(name, **({"criterion": criterion} if has_one else {}) | given)
    return made


def _assign(own: dict[str, dict[str, Any]], target: str | None, key: str, value: str) -> None:
    names = {label: label.split(":")[0] for label in own}
    if target is not None:
        if target not in names.values():
            near = did_you_mean(target, set(names.values()))
            raise InputError(f"{target!r} is not among the methods; {near}")
        names = {label: name for label, name in names.items() if name == target}
    else:
        every = {s for name in names.values() for s in checks.known(method(name))}
        if key not in every:
            raise InputError(f"no method here has a setting {key!r}; {checks.nearest(key, every)}")
        names = {la: n for la, n in names.items() if key in checks.known(method(n))}
    for label, name in names.items():
        # settings spelled out in the list of methods win over assignments
        own[label] = {key: checks.parse_value(name, method(name), key, value)} | own[label]


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f"a setting is given as name=value, got {text!r}")
    return key.strip(), value.strip()

"""`ux.evaluate`: how well a model ranks judged pairs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from unexposed.api.inputs import as_columns, as_impressions, as_judged, as_model, as_protocol
from unexposed.cards import NONE, Card, HasCard, as_text, number, signed
from unexposed.data.ids import column
from unexposed.data.labelled import Impressions, Judgements
from unexposed.data.log import Say
from unexposed.data.pairs import Indices
from unexposed.data.write import Library, as_frame
from unexposed.evaluation import protocols
from unexposed.evaluation.describe import describe, of_document
from unexposed.evaluation.protocols import DEFAULT, Protocol, choice
from unexposed.model.model import Model
from unexposed.ranking.verdict import RIVAL, Verdict

GAIN = (RIVAL, "difference", "difference_low", "difference_high", "p_value")  # columns of `frame`


@dataclass(frozen=True, eq=False)
class Evaluation(HasCard):
    """How well a model ranks judged pairs: one value per user for every metric."""

    model: Model
    judged: Judgements | Impressions
    protocol: Protocol
    rivals: Mapping[str, Model] = field(default_factory=dict)

    @cached_property
    def _evaluated(self) -> protocols.Evaluation:
        return protocols.evaluate(self.model, self.judged, self.protocol)

    @property
    def users(self) -> Indices:
        """The indices of the users that the protocol evaluates."""
        return self._evaluated.users

    @property
    def values(self) -> dict[str, NDArray[np.float64]]:
        """The values of every metric, one for each of `users`."""
        return self._evaluated.values

    def means(self) -> dict[str, float]:
        """The mean over users of every metric."""
        return self._evaluated.means()

    @cached_property
    def document(self) -> dict[str, Any]:
        """Everything as plain data: intervals, figures by popularity, and the lists."""
        return describe(self.model, self.judged, self.protocol, rivals=self.rivals)

    def frame(self, library: Library = "polars") -> Any:
        """A row for each metric: mean, its 95 % interval over users, the gain over the popular
        list with its interval and p-value, and the means by popularity.

        Head, middle and tail items hold a third of the clicks each.
        """
        beside = self.document.get("beside", {}).get(RIVAL)
        strata = self.document.get("by_popularity", {})  # off-policy estimates have none
        rows = [
            {
                "metric": metric,
                "mean": found["mean"],
                "low": found["ci95"][0],
                "high": found["ci95"][1],
                **({} if beside is None else _gain(beside.get(metric))),
                **{name: stratum["metrics"][metric] for name, stratum in strata.items()},
            }
            for metric, found in self.document["metrics"].items()
        ]
        numbers = dict.fromkeys(list(rows[0])[1:], pl.Float64)
        return as_frame(pl.DataFrame(rows, schema={"metric": pl.String, **numbers}), library)

    def by_user(self, library: Library = "polars") -> Any:
        """A row for each evaluated user, with the value of every metric."""
        user = column(self.model.user_ids.values[self.users])
        return as_frame(pl.DataFrame({"user": user, **self.values}), library)

    def __repr__(self) -> str:
        means = ", ".join(f"{name} {mean:.4f}" for name, mean in self.means().items())
        return f"Evaluation({self._line()}: {means})"

    def __str__(self) -> str:
        return as_text(self.card())

    def card(self) -> Card:
        """Every metric beside the rivals and by popularity, and how the lists spread."""
        found, lists = self.document, self.document["recommended"]
        beside, strata = found.get("beside", {}), found.get("by_popularity", {})
        heads = [found["method"], "mean", "95 % interval"]
        for rival in beside:
            heads += [rival, "difference", "95 % interval", "finding"]
        heads += [f"{name} ({stratum['items']:,} items)" for name, stratum in strata.items()]
        rows = []
        for metric, own in found["metrics"].items():
            row = [metric, number(own["mean"]), " – ".join(map(number, own["ci95"]))]
            for rival, gains in beside.items():
                gain = gains.get(metric)  # None: not finite for all users
                row += [NONE] * 4 if gain is None else _cells(gain, rival)
            rows.append([*row, *(number(part["metrics"][metric]) for part in strata.values())])
        note = (
            f"{self._line()}; 95 % intervals over users; chance: p > .05 (paired t-test); "
            "head, middle and tail items hold a third of the clicks each; "
            f"top {lists['k']} lists: {lists['coverage']:.0%} of the catalogue, "
            f"Gini {number(lists['gini'])}, mean item has {lists['mean_popularity']:.0f} clicks"
        )
        facts = {} if self.verdict is None else {"verdict": str(self.verdict)}
        return Card(f"Evaluation: {self._line()}", facts, heads, rows, note=note)

    @property
    def verdict(self) -> Verdict | None:
        """Whether the model is above the popular list and the rivals; None for that list itself."""
        return of_document(self.document)

    def _line(self) -> str:
        name, by = self.model.method.name, self.protocol.name
        return f"{name} by {by}, {len(self.users):,} users"


def _cells(gain: dict[str, Any], rival: str) -> list[str]:
    """The cells of a gain over a rival."""
    interval = " – ".join(map(number, gain["ci95"]))
    return [number(gain[rival]), signed(gain["difference"]), interval, gain["finding"]]


def _gain(found: dict[str, Any] | None) -> dict[str, float | None]:
    """The cells of a gain over the popular list, empty where there is none."""
    if found is None:
        return dict.fromkeys(GAIN)
    cells = (found[RIVAL], found["difference"], *found["ci95"], found["p_value"])
    return dict(zip(GAIN, cells, strict=True))


def evaluate(
    model: Any,
    judged: Any,
    protocol: str | Protocol = DEFAULT,
    *,
    metrics: str | Iterable[str] | None = None,
    rivals: Mapping[str, Any] | None = None,
    say: Say | None = None,
    **columns: Any,
) -> Evaluation:
    """Evaluate a model on judged pairs by a protocol: every metric for every user.

    `model` may be the folder of a saved one. `judged` are Judgements, a file or frame that
    `read_judged` can read, or later Clicks, which are all relevant; for `off_policy`, Impressions
    with propensities, or Clicks that hold them. `columns` are the keywords of `read_log`. The
    verdict sets the model beside the popular list of its clicks, and beside `rivals`: other models,
    or their files, by label.
    """
    found = prepared(model, judged, protocol, metrics=metrics, say=say, **columns)
    words = as_columns(columns)
    others = {name: as_model(one, judged, words) for name, one in (rivals or {}).items()}
    found = replace(found, rivals=others)
    found.means()  # what cannot be evaluated is refused here
    return found


def prepared(
    model: Any,
    judged: Any,
    protocol: str | Protocol | None,
    *,
    metrics: str | Iterable[str] | None = None,
    say: Say | None = None,
    **columns: Any,
) -> Evaluation:
    """An evaluation whose figures are computed when they are asked for."""
    by, words = as_protocol(DEFAULT if protocol is None else protocol, metrics), as_columns(columns)
    if by.candidates == "logged":
        shown = as_impressions(judged, words, say=say)
        return Evaluation(as_model(model, shown), shown, by)
    model = as_model(model, judged, words)
    pairs = as_judged(judged, model, words, by, say=say)
    if protocol is None and say is not None and (taken := choice(pairs, by)):
        say(taken)
    return Evaluation(model, pairs, by)

"""`ux.compare`: methods trained on the same splits, evaluated on the same pairs."""

from collections.abc import Iterable
from typing import Any

from unexposed import progress as show
from unexposed.api.inputs import (
    Columns,
    Methods,
    as_methods,
    as_protocol,
    as_splits,
)
from unexposed.evaluation import compare as room
from unexposed.evaluation.compare import Comparison
from unexposed.evaluation.protocols import DEFAULT, Protocol


def compare(
    train: Any,
    methods: Methods,
    judged: Any = None,
    *,
    protocol: str | Protocol = DEFAULT,
    metrics: str | Iterable[str] | None = None,
    seeds: int = 5,
    criterion: str | None = None,
    progress: show.Progress | None = None,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    threshold: float | None = None,
    delimiter: str | None = None,
) -> Comparison:
    """Train methods on the same splits of a log, one for each seed, and compare them.

    `train` is a log (Clicks, a file, a frame), a Split, or a data set of DATASETS or its name.
    `methods` are names ("mf,ubo:dim=20"), methods, a list of both, or a mapping of labels to them.
    Without `judged`, a fifth of the clicks judges.
    """
    by, made = as_protocol(protocol, metrics), as_methods(methods, criterion)
    columns = Columns(user, item, rating, threshold, delimiter)
    splits = as_splits(train, judged, by, columns)
    told = progress or show.on_terminal(otherwise=show.Silent)
    return room.compare(splits, made, by=by, seeds=seeds, progress=told)

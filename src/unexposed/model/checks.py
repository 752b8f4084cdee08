"""Check the arrays of a saved model before they are used."""

from typing import TYPE_CHECKING

import numpy as np

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.data.share import Share
from unexposed.files.archive import Arrays
from unexposed.model.save import CLICKS

if TYPE_CHECKING:
    from unexposed.model.model import Model


def stored_clicks(arrays: Arrays, item_ids: Ids, share: Share | None = None) -> Clicks:
    """The clicks; checks only their number and bounds, the rest when used."""
    columns = part(arrays, "clicks.")
    if {name: column.dtype for name, column in columns.items()} != CLICKS:
        raise ValueError("its clicks have other columns than a model has")
    ids = {"user_ids": Ids.unpacked(part(arrays, "ids.users.")), "item_ids": item_ids}
    clicks = Clicks.stored(**columns, **ids, share=share)  # type: ignore[arg-type]
    n, start = len(clicks.items), columns["user_start"]
    lengths = dict.fromkeys(CLICKS, (n,)) | {"user_start": (clicks.n_users + 1,)}
    if {name: column.shape for name, column in columns.items()} != lengths:
        raise ValueError("its columns of clicks differ in length")
    if start[0] != 0 or start[-1] != n:
        raise ValueError("its clicks do not begin and end with its users")
    return clicks


def check_shapes(model: "Model") -> None:
    """Refuse parameters of the wrong shape, without reading them."""
    rows = {"user_factors": model.clicks.n_users, "item_factors": model.clicks.n_items}
    for name, array in model.parameters.items():
        for ending, n in rows.items():
            if name.endswith(ending) and len(array) != n:
                raise ValueError(f"{name} has {len(array)} rows for {n}")
        width = getattr(model.method, "width", None)
        if name.endswith("_factors") and width not in (None, array.shape[-1]):
            raise ValueError(f"{name} has {array.shape[-1]} columns for {width}")
    nobody = np.zeros(0, dtype=np.int32)
    method, parameters = model.method, model.parameters
    blocks = [model.scores(nobody)]
    exposure = method.exposure(parameters, nobody)
    if exposure is not None:
        blocks += [exposure, method.pair_exposure(parameters, nobody, nobody)[:, None]]
    for block, width in zip(blocks, (model.clicks.n_items, model.clicks.n_items, 1), strict=False):
        if block.shape != (0, width):
            raise ValueError("its parameters do not score all items")


def check_values(model: "Model") -> None:
    """Refuse unordered clicks, repeated ids and parameters that are not finite."""
    model.clicks.checked()
    for ids in (model.user_ids, model.item_ids):
        values = np.asarray(ids.values)
        ordered = values if ids.order is None else values[ids.order]
        if len(set(ordered.tolist())) != len(values):
            raise ValueError("an id occurs twice")
        if ids.are_sortable and (ordered[1:] < ordered[:-1]).any():
            raise ValueError("its ids are not in their stated order")
    for name, array in model.parameters.items():
        if not np.isfinite(array).all():
            raise ValueError(f"{name} holds values that are not finite")


def part(arrays: Arrays, prefix: str) -> Arrays:
    return {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}

"""Answers as data frames: polars, or pandas where that is asked for."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, get_args

from unexposed.errors import InputError, did_you_mean

if TYPE_CHECKING:
    import polars as pl

Library = Literal["polars", "pandas"]


def as_frame(frame: "pl.DataFrame", library: Library) -> Any:
    """This polars frame as a frame of the library."""
    if library == "polars":
        return frame
    if library not in get_args(Library):
        near = did_you_mean(str(library), get_args(Library))
        raise InputError(f"no frames of {library!r}; {near}")
    try:
        pandas = import_module("pandas")
    except ImportError:
        raise InputError("this needs pandas: pip install pandas, or take polars") from None
    # column by column: polars would need pyarrow for the whole
    return pandas.DataFrame({name: frame[name].to_numpy() for name in frame.columns})

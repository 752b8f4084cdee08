"""Open a saved model with all of its users."""

from pathlib import Path
from typing import TYPE_CHECKING

from unexposed.cli.talking import say

if TYPE_CHECKING:
    from unexposed.model.model import Model


def whole(folder: Path, *, verify: bool = False) -> "Model":
    """The saved model; of one that is saved by partitions, say that all of them are opened."""
    from unexposed.methods import load
    from unexposed.model.load import is_parted

    if is_parted(folder):
        say(f"{folder} is saved by partitions: opening all of them")
    return load(folder, verify=verify)

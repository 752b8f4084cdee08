"""Small models for the tests of the service, without training."""

from pathlib import Path
from typing import Any

import numpy as np

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.methods import make
from unexposed.model.model import Model
from unexposed.serve.app import application
from unexposed.serve.model import Current, Source

N_USERS, N_ITEMS, DIM = 40, 300, 8
TRAINED = {
    **{"epochs_run": 3, "best_epoch": 3, "ended": "epochs", "seconds": 0.1, "best_value": 0.3},
    **{"losses": [3.0, 2.0, 1.0], "held_out": [0.1, 0.2, 0.3]},
}
NASTY = ["<img src=x onerror=alert(1)>", 'a "quoted" & b', "日本/語?#", " ", "1"]


def clicks(users: Ids | None = None, items: Ids | None = None, seed: int = 0) -> Clicks:
    """Five clicks of each user, popular items more often."""
    rng = np.random.default_rng(seed)
    drawn = [np.sort(rng.permutation(N_ITEMS // (1 + user % 3))[:5]) for user in range(N_USERS)]
    return Clicks.from_pairs(
        np.repeat(np.arange(N_USERS, dtype=np.int32), 5),
        np.concatenate(drawn).astype(np.int32),
        user_ids=users or Ids.range(N_USERS),
        item_ids=items or Ids.range(N_ITEMS),
    )


def model(name: str = "mf", log: Clicks | None = None, seed: int = 0, **settings: Any) -> Model:
    """A model of random vectors; the seed tells generations apart."""
    log, rng = log or clicks(), np.random.default_rng(seed)
    shapes = {"user_factors": log.n_users, "item_factors": log.n_items}
    parameters = {
        table: rng.normal(0, 0.5, (n, DIM)).astype(np.float32) for table, n in shapes.items()
    }
    if name == "umf":
        parameters["exposure"] = np.linspace(0.1, 0.9, log.n_items, dtype=np.float32)
    return Model(make(name, dim=DIM, **settings), parameters, log, TRAINED)


def write_titles(folder: Path) -> Path:
    """Titles of the first 250 items, as a file."""
    file = folder / "titles.csv"
    rows = [f"{item},The {'Red' if item % 2 else 'Blue'} Item {item}" for item in range(250)]
    file.write_text("item,title\n" + "\n".join(rows) + "\n")
    return file


def app(path: Path, said: list[str] | None = None, **options: Any) -> Any:
    lines = [] if said is None else said
    current = Current(Source(path, options.pop("titles", None)), say=lines.append)
    return application(current, **options)

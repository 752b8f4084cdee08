"""Small models for the tests of the service, without training, and a check of JSON schemas."""

from pathlib import Path
from typing import Any

import numpy as np

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.methods import make
from unexposed.model.model import Model
from unexposed.serve.app import application
from unexposed.serve.held import Source
from unexposed.serve.reloading import Current

N_USERS, N_ITEMS, DIM = 40, 300, 8
TRAINED = {
    **{"epochs_run": 3, "best_epoch": 3, "ended": "epochs", "seconds": 0.1, "best_value": 0.3},
    **{"losses": [3.0, 2.0, 1.0], "held_out": [0.1, 0.2, 0.3]},
}
NASTY = ["<img src=x onerror=alert(1)>", 'a "quoted" & b', "日本/語?#", " ", "1", "\ud800"]


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


def app(folder: Path, said: list[str] | None = None, **options: Any) -> Any:
    lines = [] if said is None else said
    titles = options.pop("titles", None)
    current = Current(Source(folder, titles), say=lines.append)
    return application(current, fail=lines.append, **options)


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value fits a JSON schema, of the words that the service uses."""
    if "oneOf" in schema:
        return sum(fits(value, one) for one in schema["oneOf"]) == 1
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(_is(value, kind) for kind in kinds):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, int | float) and not isinstance(value, bool):
        return schema.get("minimum", value) <= value <= schema.get("maximum", value)
    if isinstance(value, dict) and "properties" in schema:
        known = schema["properties"]
        named = set(value) == set(known) == set(schema["required"])
        return named and all(fits(value[name], known[name]) for name in known)
    if isinstance(value, list) and "items" in schema:
        return all(fits(one, schema["items"]) for one in value)
    return True


def _is(value: Any, kind: str) -> bool:
    types = {
        "string": str,
        "array": list,
        "object": dict,
        "boolean": bool,
        "null": type(None),
    }
    if kind in types:
        return isinstance(value, types[kind])
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and (kind == "number" or isinstance(value, int))

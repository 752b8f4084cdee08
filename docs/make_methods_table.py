"""Write the table of methods into docs/choosing.md: what each is and can do.

Every cell is asked of the code: the first line of the method's file, and a model of a tiny world.
Run: python docs/make_methods_table.py
"""

import re
from pathlib import Path
from typing import Any

import numpy as np

import unexposed as ux
from unexposed.methods import about
from unexposed.settings import known

HERE = Path(__file__).parent
PAGES = (HERE / "choosing.md",)
PLACE = re.compile(r"(<!-- methods -->\n).*?(<!-- end of methods -->)", re.DOTALL)
HEAD = "| method | what it is | exposure | epochs | vectors | new users |"
TINY = {"epochs": 1, "dim": 2, "n_models": 2}


def table() -> str:
    """A row for each method, in the order of METHODS."""
    rows = "\n".join(_row(name) for name in ux.METHODS)
    return f"{HEAD}\n{'|---' * HEAD.count(' |')}|\n{rows}\n"


def filled(page: str) -> str:
    """The page with the table in its place."""
    new, places = PLACE.subn(lambda m: m[1] + table() + m[2], page)
    assert places == 1, "the page needs one place for the table of methods"
    return new


def _row(name: str) -> str:
    cls = ux.METHODS[name]
    tiny: dict[str, Any] = {key: value for key, value in TINY.items() if key in known(cls)}
    model = ux.make(name, **tiny).fit(ux.world(40, 20, seed=0).clicks(0))
    exposure = "none"
    if model.method.exposure(model.parameters, np.zeros(1, dtype=np.int32)) is not None:
        starts = "validation" in model.method.takes  # a given exposure is where learning starts
        given = "exposure" in model.method.takes and not starts
        exposure = "given" if given else "learned"
    cells = (exposure, *map(_yes_or_no, _abilities(model)))
    return f"| `{name}` | {about(name)} | {' | '.join(cells)} |"


def _abilities(model: ux.Model) -> tuple[bool, bool, bool]:
    has_vectors = model.method.vectors(model.parameters) is not None
    try:
        model.recommend_for(model.item_ids.values[:2].tolist(), k=1)
        folds_in = True
    except ux.InputError:
        folds_in = False
    return "epochs" in known(type(model.method)), has_vectors, folds_in


def _yes_or_no(value: bool) -> str:
    return "yes" if value else "no"


def main() -> None:
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()

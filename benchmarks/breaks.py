"""Break the code on purpose, one line at a time, and see that its tests notice.

`breaks.py` tries all breaks, `breaks.py NAME …` those whose names start so. The text to break must
stand once in the package; it is put back whatever happens. Run it on a clean checkout.
"""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Break(NamedTuple):
    """A line, what stands in its place for a while, and the tests that must fail."""

    name: str
    text: str
    broken: str
    tests: str


BREAKS = [
    Break(
        "slope of the low-variance loss without m",
        "unclicked = exposure * sigmoid(logit) * _dislike_given_no_click(logit, exposure)",
        "unclicked = sigmoid(logit) * _dislike_given_no_click(logit, exposure)",
        "tests/maths",
    ),
    Break(
        "hypergradient of clicks",
        "return torch.where(click > 0, torch.zeros_like(unclicked), unclicked)",
        "return unclicked",
        "tests/maths tests/engine",
    ),
    Break(
        "variance of the low-variance loss",
        "return chance * (1 - chance) / (estimate**2 * (1 - exposure * estimate) ** 2)",
        "return chance * (1 - chance) / (estimate**2 * (1 - estimate) ** 2)",
        "tests/maths",
    ),
    Break(
        "variance of inverse propensity",
        "return relevance * (1 - chance) / (exposure * estimate**2 * (1 - estimate) ** 2)",
        "return relevance * (1 - chance) / (estimate**2 * (1 - estimate) ** 2)",
        "tests/maths",
    ),
    Break(
        "exposure that moves the item",
        "item_vector = item_vector.detach()",
        "item_vector = item_vector * 1",
        "tests/maths tests/engine",
    ),
    Break(
        "popularity without a floor",
        "np.maximum(share**exponent, floor)",
        "np.maximum(share**exponent, 0)",
        "tests/maths",
    ),
    Break(
        "cross slope in the kernel",
        "return t / (q + t) / (q + t)",
        "return t / (q + t)",
        "tests/engine",
    ),
    Break(
        "bias correction of the reference",
        "scale = (second / (1 - BETA2**number)).sqrt_().add_(EPSILON)",
        "scale = second.sqrt().add_(EPSILON)",
        "tests/engine",
    ),
    Break(
        "most active users by chance",
        'order = np.argsort(-clicks.user_counts, kind="stable")',
        'order = np.argsort(clicks.user_counts, kind="stable")',
        "tests/sampling",
    ),
    Break(
        "variance of inverse propensity scores",
        "variance = ((weight**2 * clicked).sum() - n * value**2) / (n - 1) / n",
        "variance = ((weight * clicked).sum() - n * value**2) / (n - 1) / n",
        "tests/evaluation",
    ),
    Break(
        "correction of Holm",
        "min(1.0, (len(p_values) - smaller) * p_values[name])",
        "min(1.0, p_values[name])",
        "tests/evaluation",
    ),
    Break(
        "discount of an ideal list",
        "gains = 1 / np.log2(np.arange(1, n_ideal.max(initial=0) + 1) + 1)",
        "gains = 1 / np.log2(np.arange(1, n_ideal.max(initial=0) + 1) + 2)",
        "tests/ranking",
    ),
    Break(
        "clicked items count as rivals",
        "before -= row[clicked[click]] > score",
        "before -= 0",
        "tests/ranking",
    ),
    Break(
        "clicks are listed again",
        "block[rows, items] = -np.inf",
        "block[rows, items] = block[rows, items]",
        "tests/model tests/test_methods.py",
    ),
    Break(
        "weights between items keep a diagonal",
        "    out[diagonal] = 0\n",
        "    out[diagonal] = 1\n",
        "tests/methods",
    ),
    Break(
        "share of held-out clicks",
        "chosen = drawn(self.n_clicks, fraction=fraction, seed=seed)",
        "chosen = drawn(self.n_clicks, fraction=1 - fraction, seed=seed)",
        "tests/data",
    ),
    Break(
        "weight of clicks in wmf",
        "clicked.T * (weight - self.unclicked_weight)",
        "clicked.T * weight",
        "tests/methods tests/test_methods.py",
    ),
    Break(
        "partition of a user",
        "digest_size=8).digest())",
        "digest_size=4).digest())",
        "tests/model/test_partitions.py",
    ),
    Break(
        "weights of drawn items",
        "weight *= self.item_weight[self.items]",
        "weight *= 1",
        "tests/sampling tests/engine",
    ),
    Break(
        "kernels of another text",
        "kernel._cache._cache_file._source_stamp = _stamp(",
        "_stamp(",
        "tests/test_compiled.py",
    ),
]


def place(text: str) -> Path:
    """The one file of the package that holds the text."""
    files = [p for p in sorted((ROOT / "src").rglob("*.py")) if text in p.read_text()]
    if len(files) != 1 or files[0].read_text().count(text) != 1:
        raise SystemExit(f"not exactly once in the package: {text!r} ({len(files)} files)")
    return files[0]


def is_caught(one: Break) -> bool:
    """Whether a test fails while the code is broken."""
    file = place(one.text)
    sound = file.read_text()
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    try:
        file.write_text(sound.replace(one.text, one.broken))
        done = subprocess.run([*command, *one.tests.split()], cwd=ROOT, capture_output=True)
    finally:
        file.write_text(sound)
    return done.returncode == 1


def main() -> None:
    names = sys.argv[1:]
    chosen = [b for b in BREAKS if not names or any(b.name.startswith(name) for name in names)]
    for one in chosen:
        place(one.text)
    missed = 0
    for one in chosen:
        caught = is_caught(one)
        missed += not caught
        print(f"{'caught' if caught else 'MISSED'}  {one.name}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} breaks are caught")
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()

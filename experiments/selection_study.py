"""Which estimate on held-out clicks ranks settings, and epochs, as the judged set would.

    python experiments/selection_study.py coat experiments/real/results/tuning/coat_*.json

The settings of the trials of the given tuning studies are trained again on some splits. After every
few epochs each estimate is taken on the held-out clicks, and the judged DCG@3 beside it, mean over
splits. Nothing is chosen here: it says how good a choice each estimate would have been. Written to
experiments/results/selection_NAME.json.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from unexposed.data import datasets
from unexposed.data.clicks import Clicks, Judgements, Split
from unexposed.evaluation.protocols import PROTOCOLS, eligible, split_ratings
from unexposed.experiments.provenance import commit, versions
from unexposed.methods import make
from unexposed.methods.trained import TrainedMethod
from unexposed.progress import Silent
from unexposed.ranking import metrics
from unexposed.ranking.rank import rank_catalogue, rank_judged
from unexposed.training.given import Parameters, Side

EXPONENTS = (-1.0, 0.0, 1.0, 1.5, 2.0, 3.0)
LISTS = {"few": (3, 10), "top 20": (20, 0), "all": (None, 0)}  # k, and random candidates
WINDOW = 5  # measurements averaged, as training averages epochs


def estimates(scores: Any, clicks: Clicks, held_out: Clicks) -> dict[str, float]:
    """Every estimate of the quality of a model on its held-out clicks."""
    yes = np.ones(len(held_out), dtype=bool)
    wanted = Judgements(held_out.users, held_out.items, yes, held_out.user_ids, held_out.item_ids)
    ranking = rank_catalogue(scores, wanted, clicks)
    found = {}
    for exponent in EXPONENTS:
        propensity = metrics.propensity(clicks.item_counts, exponent=exponent)
        weighed = replace(ranking, weights=1 / propensity[ranking.items])
        for name, (k, candidates) in LISTS.items():
            if candidates:
                values = metrics.snips_dcg_of_few(weighed, k, candidates=candidates)
            else:
                values = metrics.snips_dcg(weighed, k)
            found[f"{name}, {exponent:g}"] = float(values.mean())
            if not candidates:
                pooled = metrics.snips_dcg_pooled(weighed, k)
                found[f"{name} pooled, {exponent:g}"] = float(pooled.mean())
    return found


def course(
    method: TrainedMethod, split: Split, judged: Judgements, *, every: int, seed: int
) -> list[Any]:
    """What each estimate and the judged set say after every few epochs of a training."""
    trainee = method.trainee(split.train, seed=seed, side=Side(), progress=Silent())
    found = []
    for number in range(1, method.epochs + 1):
        loss = trainee.epoch()
        if not np.isfinite(loss):
            break
        if number % every:
            continue
        parameters: Parameters = trainee.parameters()

        def scores(users: Any, parameters: Parameters = parameters) -> Any:
            return method.scores(parameters, users, split.train)

        ranked = rank_judged(scores, judged, split.train)
        said = estimates(scores, split.train, split.held_out)
        found.append([float(metrics.dcg(ranked, 3).mean()), said])
    return found


def mean_course(courses: list[list[Any]]) -> list[Any]:
    """The mean over splits, as long as all of them trained."""
    found = []
    for at in zip(*courses, strict=False):
        judged = float(np.mean([value for value, _ in at]))
        said = {name: float(np.mean([own[name] for _, own in at])) for name in at[0][1]}
        found.append([judged, said])
    return found


def verdicts(courses: list[list[Any]]) -> dict[str, dict[str, float]]:
    """Of each estimate: what its epochs cost, and how it ranks the settings."""
    found = {}
    for name in courses[0][0][1]:
        kept, said, lost = [], [], []
        for one in courses:
            judged = np.array([value for value, _ in one])
            own = np.array([all_[name] for _, all_ in one])
            width = min(WINDOW, len(own))
            smooth = np.convolve(own, np.ones(width) / width, "valid")
            at = int(smooth.argmax())
            kept.append(judged[at + width - 1])
            said.append(smooth[at])
            lost.append(judged.max() - kept[-1])
        found[name] = {
            "epoch_regret": float(np.mean(lost)),
            "rank_correlation": float(spearmanr(said, kept).statistic),
            "dcg_of_its_best": float(kept[int(np.argmax(said))]),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("studies", nargs="+", type=Path)
    parser.add_argument("--every", type=int, default=4, help="epochs between measurements")
    parser.add_argument("--most", type=int, default=40, help="trials taken of each study")
    parser.add_argument("--splits", type=int, default=1, help="that each is trained on")
    parser.add_argument("--data-dir", type=Path)
    given = parser.parse_args()
    data = datasets.load(given.dataset, data_dir=given.data_dir)
    by = PROTOCOLS["ubo-ijcai22"]
    splits = [split_ratings(data.logged, data.random, by, seed=n) for n in range(given.splits)]
    judged = [eligible(split.judged, split.train, by) for split in splits]
    courses, methods = [], []
    for path in given.studies:
        study = json.loads(path.read_text(encoding="utf-8"))
        for trial in study["trials"][: given.most]:
            settings = {k: v for k, v in study["held"].items() if k != "engine"}
            method = make(study["method"], **settings, **trial["settings"])
            assert isinstance(method, TrainedMethod)
            each = [
                course(method, split, judged[n], every=given.every, seed=n)
                for n, split in enumerate(splits)
            ]
            if not all(each):
                continue  # a loss that was not finite
            courses.append(mean_course(each))
            methods.append(method.name)
            print(f"{path.stem}: trial {trial['number']}, {len(courses)} in all", flush=True)
    document = {
        "dataset": given.dataset,
        "trials": len(courses),
        "splits": given.splits,
        "methods": sorted(set(methods)),
        "best_of_all": max(value for one in courses for value, _ in one),
        "best_judged": float(np.mean([max(v for v, _ in one) for one in courses])),
        "estimates": verdicts(courses),
        "versions": versions(),
        "commit": commit(),
    }
    out = Path(__file__).parent / "results" / f"selection_{given.dataset}.json"
    out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

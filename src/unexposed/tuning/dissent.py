"""What other criteria would have chosen in a study."""

from typing import Any

from unexposed.evaluation import agreement


def dissent(document: dict[str, Any]) -> dict[str, str]:
    """The trial that each criterion prefers to the best one of a study, in words."""
    trials = {str(t["number"]): t for t in document["trials"] if "criteria" in t}
    chosen = str(document["best"]["trial"])
    if chosen not in trials:
        return {}  # a study of before trials were judged by all criteria
    rated = {number: trial["criteria"] for number, trial in trials.items()}
    found = agreement.dissent(rated, chosen)
    return {name: _spoken(trials[number]) for name, number in found.items()}


def _spoken(trial: dict[str, Any]) -> str:
    settings = trial["settings"].items()
    return f"trial {trial['number']} ({' '.join(f'{k}={_short(v)}' for k, v in settings)})"


def _short(value: Any) -> str:
    return f"{value:.2g}" if isinstance(value, float) else str(value)

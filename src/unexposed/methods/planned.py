"""The plan of a method's training: which of its settings decide what a rank needs."""

from unexposed.errors import InputError
from unexposed.maths.relevance import DotProduct
from unexposed.methods.composed import ComposedMethod
from unexposed.model.recommender import Recommender
from unexposed.training.plan import Training


def planned(
    name: str, method: Recommender, *, users: int, items: int, clicks: int, ranks: int
) -> Training:
    """The sizes of this method's training on a log of these sizes."""
    if not isinstance(method, ComposedMethod):
        raise InputError(
            f"{name} is not trained in steps that ranks could share; plan another, such as ubo"
        )
    parts = method.composition()
    if not isinstance(parts.relevance, DotProduct):
        raise InputError("several ranks train dot products only: plan relevance=dot")
    if parts.drawing.every_pair:
        raise InputError(f"{name} with every pair is for small logs: plan drawn negatives")
    return Training(
        users=users,
        items=items,
        clicks=clicks,
        ranks=ranks,
        dim=method.width,
        batch_size=method.batch_size,
        negatives=parts.drawing.negatives,
        strategy=parts.objective().strategy,
        engine="cuda" if method.engine == "cuda" else "cpu",
    )

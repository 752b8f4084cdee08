"""How exposure parameters α learn beside relevance parameters ω: the one-step hypergradient.

    bilevel           α descends L_val(ω′),       ω′ = ω − η·∂L_train(ω, α)/∂ω
    bilevel_on_batch  α descends L_train(ω′, α),  the same ω′: α also has its direct gradient
    joint             α and ω descend L_train(ω, α) together
    alternate         α descends L_train(ω, α), then ω does with the new α
    frozen            α stays

Every loss here is a sum over pairs, as the paper writes it, never a mean: means over both sets
would shrink the hypergradient by the product of their sizes, and Adam's epsilon would swallow it.

m depends on ωᵢ, but is a constant to ω (`exposure.gated` detaches it). The paper does not say at
which ω it takes m in L_train(ω′, α). We take m at ω, so that both steps use one m and the loss is
a function of α alone. A `train_loss` that computes m from its first argument takes it at ω′.
"""

from collections.abc import Callable
from typing import NamedTuple

from unexposed.late import Tensor, torch
from unexposed.maths.exposure import gated_gradient
from unexposed.maths.losses import (
    low_variance_cross_gradient,
    low_variance_exposure_gradient,
    low_variance_gradient,
)

STRATEGIES: dict[str, str] = {
    "bilevel": "exposure learns from the unbiased validation pairs, one relevance step ahead (UBO)",
    "joint": "exposure and relevance step together on the training loss (JointOpt)",
    "alternate": "exposure steps on the training loss, then relevance does (AlterOpt)",
    "bilevel_on_batch": "exposure learns from the batch itself, one relevance step ahead (BiOpt2)",
    "frozen": "exposure keeps its initial values: the baseline that shows what learning adds",
}

Parameters = tuple[Tensor, ...]
Fixed = tuple[int | None, int | None]  # the fixed column of the user table and of the item table
TrainLoss = Callable[[Parameters, Parameters], Tensor]  # (ω, α) → a sum over pairs
ValidationLoss = Callable[[Parameters], Tensor]  # ω → a sum over pairs
Total = Callable[[Parameters], Parameters]  # ∂/∂ω → with what other processes add to it


def hypergradient(
    train_loss: TrainLoss,
    validation_loss: ValidationLoss,
    relevance: Parameters,
    exposure: Parameters,
    *,
    lookahead: float,
    total: Total = lambda gradients: gradients,
) -> Parameters:
    """dL_val(ω′)/dα for any differentiable relevance model, one gradient for each of `exposure`.

    With v = ∂L_val/∂ω at ω′, it is ∂/∂α of −η·(∂L_train/∂ω · v); `lookahead` is η. Where several
    processes have a part of both losses, `total` makes ω′ and v from all of them; the result is
    the gradient of this process's part, to be added to the others'.
    """
    return _one_step(
        train_loss, lambda ahead, _: validation_loss(ahead), relevance, exposure, lookahead, total
    )


def hypergradient_on_batch(
    train_loss: TrainLoss,
    relevance: Parameters,
    exposure: Parameters,
    *,
    lookahead: float,
    total: Total = lambda gradients: gradients,
) -> Parameters:
    """dL_train(ω′, α)/dα, through ω′ and directly, for any differentiable relevance model."""
    return _one_step(train_loss, train_loss, relevance, exposure, lookahead, total)


def _one_step(
    train_loss: TrainLoss,
    outer_loss: TrainLoss,
    relevance: Parameters,
    exposure: Parameters,
    lookahead: float,
    total: Total,
) -> Parameters:
    relevance, exposure = _leaves(relevance), _leaves(exposure)
    with torch.enable_grad():  # in a caller's no_grad every gradient would be zero
        steps = _gradients(train_loss(relevance, exposure), relevance, create_graph=True)
        ahead = _leaves(
            tuple(w - lookahead * step for w, step in zip(relevance, total(steps), strict=True))
        )  # ω′
        outer = _gradients(outer_loss(ahead, exposure), (*ahead, *exposure))
        directions, direct = total(outer[: len(ahead)]), outer[len(ahead) :]  # v, ∂L_outer/∂α
        along = torch.stack([(s * v).sum() for s, v in zip(steps, directions, strict=True)]).sum()
        through = _gradients(along, exposure)
    return tuple(d - lookahead * t for d, t in zip(direct, through, strict=True))


def _leaves(parameters: Parameters) -> Parameters:
    return tuple(p.detach().requires_grad_() for p in parameters)


def _gradients(value: Tensor, parameters: Parameters, *, create_graph: bool = False) -> Parameters:
    """∂value/∂parameters, zero where the value does not depend on a parameter."""
    if not value.requires_grad:
        return tuple(torch.zeros_like(p) for p in parameters)
    return torch.autograd.grad(
        value, parameters, create_graph=create_graph, allow_unused=True, materialize_grads=True
    )


class Pairs(NamedTuple):
    """User-item pairs, (B,) each; users, items and pairs may repeat."""

    users: Tensor
    items: Tensor
    click: Tensor  # in a validation set: whether relevant
    weight: Tensor


def factor_hypergradient(
    user_factors: Tensor,
    item_factors: Tensor,
    batch: Pairs,
    exposure: Tensor,  # m of the batch, (B,)
    validation: Pairs,
    *,
    lookahead: float,
    fixed: Fixed = (None, None),
) -> Tensor:
    """dL_val(ω′)/dm of each pair of the batch, (B,), for p = σ(ωᵤᵀωᵢ) and L2 (appendix C).

    −η · p(1 − p)/(1 − mp)² · (gᵤᵀωᵢ + gᵢᵀωᵤ) without a click, g = ∂L_val/∂ω at ω′;
    exactly 0 for a click (appendix B). In L_val, m = 1. Fixed columns of ω, the ones beside a
    bias, do not move in ω′, and g is 0 there.
    """
    ahead = _look_ahead(user_factors, item_factors, batch, exposure, lookahead, fixed)
    shown = torch.ones_like(validation.weight)
    direction = _factor_gradients(*ahead, validation, shown, fixed)
    return _through_step(user_factors, item_factors, batch, exposure, direction, lookahead)


def factor_hypergradient_on_batch(
    user_factors: Tensor,
    item_factors: Tensor,
    batch: Pairs,
    exposure: Tensor,
    *,
    lookahead: float,
    fixed: Fixed = (None, None),
) -> Tensor:
    """dL_train(ω′, m)/dm of each pair of the batch, (B,), through ω′ and directly."""
    ahead = _look_ahead(user_factors, item_factors, batch, exposure, lookahead, fixed)
    direction = _factor_gradients(*ahead, batch, exposure, fixed)
    through = _through_step(user_factors, item_factors, batch, exposure, direction, lookahead)
    direct = low_variance_exposure_gradient(_logits(*ahead, batch), batch.click, exposure)
    return through + batch.weight * direct


def factor_exposure_gradient(
    pair_gradient: Tensor,  # on m, (B,)
    batch: Pairs,
    user_vectors: Tensor,  # e (n_users, dim)
    item_factors: Tensor,  # (n_items, dim)
    gate_weight: Tensor,  # w (dim,)
    gate_bias: Tensor,  # b ()
    popularity: Tensor,  # θ (n_items,)
    *,
    offset: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Carry a gradient g on m into e (n_users, dim), w (dim,) and b (): Σ over pairs of g·∂m/∂α.

    Every strategy uses it; for joint and alternate, g is weight·∂L2/∂m.
    """
    by_user, by_weight, by_bias = gated_gradient(
        user_vectors[batch.users],
        item_factors[batch.items],
        gate_weight,
        gate_bias,
        popularity[batch.items],
        offset=offset,
    )
    on_users = _scatter(user_vectors, batch.users, pair_gradient[:, None] * by_user)
    return on_users, pair_gradient @ by_weight, pair_gradient @ by_bias


def _logits(user_factors: Tensor, item_factors: Tensor, pairs: Pairs) -> Tensor:
    return (user_factors[pairs.users] * item_factors[pairs.items]).sum(-1)


def _factor_gradients(
    user_factors: Tensor, item_factors: Tensor, pairs: Pairs, exposure: Tensor, fixed: Fixed
) -> tuple[Tensor, Tensor]:
    """∂/∂ω of Σ weight·L2, as two tables: each pair adds ∂L/∂x·ωᵢ to its user, ·ωᵤ to its item."""
    logit = _logits(user_factors, item_factors, pairs)
    slope = (pairs.weight * low_variance_gradient(logit, pairs.click, exposure))[:, None]
    on_users = _scatter(user_factors, pairs.users, slope * item_factors[pairs.items])
    on_items = _scatter(item_factors, pairs.items, slope * user_factors[pairs.users])
    for gradient, column in zip((on_users, on_items), fixed, strict=True):
        if column is not None:
            gradient[:, column] = 0
    return on_users, on_items


def _look_ahead(
    user_factors: Tensor,
    item_factors: Tensor,
    batch: Pairs,
    exposure: Tensor,
    lookahead: float,
    fixed: Fixed,
) -> tuple[Tensor, Tensor]:
    """ω′ = ω − η·∂L_train/∂ω."""
    on_users, on_items = _factor_gradients(user_factors, item_factors, batch, exposure, fixed)
    return user_factors - lookahead * on_users, item_factors - lookahead * on_items


def _through_step(
    user_factors: Tensor,
    item_factors: Tensor,
    batch: Pairs,
    exposure: Tensor,
    direction: tuple[Tensor, Tensor],  # g, as two tables
    lookahead: float,
) -> Tensor:
    """−η · weight · ∂²L2/∂x∂m · (gᵤᵀωᵢ + gᵢᵀωᵤ): how m moves the outer loss through ω′."""
    on_users, on_items = direction
    along = _logits(on_users, item_factors, batch) + _logits(user_factors, on_items, batch)
    logit = _logits(user_factors, item_factors, batch)
    cross = low_variance_cross_gradient(logit, batch.click, exposure)
    return -lookahead * batch.weight * cross * along


def _scatter(like: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """Sum the values of each row into a table of this shape."""
    return torch.zeros_like(like).index_add_(0, rows, values)

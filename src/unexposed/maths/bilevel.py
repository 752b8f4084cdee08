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

from unexposed.late import Tensor, torch

STRATEGIES: dict[str, str] = {
    "bilevel": "exposure learns from the unbiased validation pairs, one relevance step ahead (UBO)",
    "joint": "exposure and relevance step together on the training loss (JointOpt)",
    "alternate": "exposure steps on the training loss, then relevance does (AlterOpt)",
    "bilevel_on_batch": "exposure learns from the batch itself, one relevance step ahead (BiOpt2)",
    "frozen": "exposure keeps its initial values: the baseline that shows what learning adds",
}

Parameters = tuple[Tensor, ...]
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

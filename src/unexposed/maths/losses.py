"""The estimators: what one pair costs, its slope, and how noisy that slope is.

Everything is elementwise, without a reduction. `logit` is x = ωᵤᵀωᵢ and p = σ(x) the estimated
relevance; `click` is 0 or 1; `exposure` is m in (0, 1]. No probability is ever clamped:
log p = log σ(x), log(1 − p) = log σ(−x), and 1 − mp is a sum of non-negative terms.
"""

from collections.abc import Callable
from dataclasses import dataclass

from unexposed.late import Tensor, logsigmoid, sigmoid, torch


def inverse_propensity(logit: Tensor, click: Tensor, exposure: Tensor) -> Tensor:
    """L1, the loss of RelMF: −[c/m·log p + (1 − c/m)·log(1 − p)] (Saito 2020).

    Its expectation over clicks is least at p = γ. It is not bounded below where c/m > 1.
    """
    weight = click / exposure
    return -weight * logsigmoid(logit) - (1 - weight) * logsigmoid(-logit)


def inverse_propensity_gradient(logit: Tensor, click: Tensor, exposure: Tensor) -> Tensor:
    """∂L1/∂x = p − c/m, written as a weighted sum: the difference would lose a small 1 − p."""
    weight = click / exposure
    return -weight * sigmoid(-logit) + (1 - weight) * sigmoid(logit)


def low_variance(logit: Tensor, click: Tensor, exposure: Tensor) -> Tensor:
    """L2, the loss of UMF and UBO: −[c·log(mp) + (1 − c)·log(1 − mp)] (Eq. "estimator").

    It is the likelihood of the click itself, and its expectation too is least at p = γ.
    In float32 autograd gives its second derivatives up to a logit of 43 at m = 1, where
    ∂²L2/∂m² = e²ˣ itself overflows, and slopes below 1e-7 only roughly, for it takes σ′ as
    p(1 − p). The closed forms below keep their digits.
    """
    clicked = -torch.log(exposure) - logsigmoid(logit)
    unclicked = -torch.log(_no_click(logit, exposure))
    return torch.where(click > 0, clicked, unclicked)


def low_variance_gradient(logit: Tensor, click: Tensor, exposure: Tensor) -> Tensor:
    """∂L2/∂x = −(1 − p) for a click, mp(1 − p)/(1 − mp) without one."""
    unclicked = exposure * sigmoid(logit) * _dislike_given_no_click(logit, exposure)
    return torch.where(click > 0, -sigmoid(-logit), unclicked)


def low_variance_exposure_gradient(logit: Tensor, click: Tensor, exposure: Tensor) -> Tensor:
    """∂L2/∂m = −1/m for a click, p/(1 − mp) without one."""
    return torch.where(click > 0, -1 / exposure, _relevance_over_no_click(logit, exposure))


def low_variance_cross_gradient(logit: Tensor, click: Tensor, exposure: Tensor) -> Tensor:
    """∂²L2/∂x∂m = 0 for a click (appendix B), p(1 − p)/(1 − mp)² without one (appendix C)."""
    unclicked = _relevance_over_no_click(logit, exposure) * _dislike_given_no_click(logit, exposure)
    return torch.where(click > 0, torch.zeros_like(unclicked), unclicked)


def inverse_propensity_squared(logit: Tensor, click: Tensor, exposure: Tensor) -> Tensor:
    """L1 with squared errors, as RelMF's public code trains it: c/m·(1 − p)² + (1 − c/m)·p²."""
    weight = click / exposure
    return weight * sigmoid(-logit) ** 2 + (1 - weight) * sigmoid(logit) ** 2


def inverse_propensity_squared_gradient(logit: Tensor, click: Tensor, exposure: Tensor) -> Tensor:
    """∂/∂x = 2p(1 − p)·(p − c/m)."""
    slope = sigmoid(logit) * sigmoid(-logit)  # ∂p/∂x
    return 2 * slope * inverse_propensity_gradient(logit, click, exposure)


def low_variance_squared(logit: Tensor, click: Tensor, exposure: Tensor) -> Tensor:
    """L2 with squared errors: (c − mp)²."""
    return _click_residual(logit, click, exposure) ** 2


def low_variance_squared_gradient(logit: Tensor, click: Tensor, exposure: Tensor) -> Tensor:
    """∂/∂x = −2m·p(1 − p)·(c − mp)."""
    slope = sigmoid(logit) * sigmoid(-logit)  # ∂p/∂x
    return -2 * exposure * slope * _click_residual(logit, click, exposure)


def pairwise(difference: Tensor, exposure: Tensor) -> Tensor:
    """BPR: −log σ(x_i − x_j), i clicked and j not (Rendle et al. 2009); exposure plays no part."""
    del exposure
    return -logsigmoid(difference)


def pairwise_gradient(difference: Tensor, exposure: Tensor) -> Tensor:
    """∂/∂difference = −σ(−difference)."""
    del exposure
    return -sigmoid(-difference)


def inverse_propensity_pairwise(difference: Tensor, exposure: Tensor) -> Tensor:
    """UBPR: −1/m_i·log σ(x_i − x_j), i clicked and j not (Saito 2020)."""
    return -logsigmoid(difference) / exposure


def inverse_propensity_pairwise_gradient(difference: Tensor, exposure: Tensor) -> Tensor:
    """∂/∂difference = −σ(−difference)/m_i."""
    return -sigmoid(-difference) / exposure


def inverse_propensity_variance(relevance: Tensor, exposure: Tensor, estimate: Tensor) -> Tensor:
    """Var ∂L1/∂p = γ(1 − mγ) / (m·p²(1 − p)²), unbounded as m → 0; `estimate` is p."""
    chance = exposure * relevance  # P(click)
    return relevance * (1 - chance) / (exposure * estimate**2 * (1 - estimate) ** 2)


def low_variance_variance(relevance: Tensor, exposure: Tensor, estimate: Tensor) -> Tensor:
    """Var ∂L2/∂p = mγ(1 − mγ) / (p²(1 − mp)²), bounded as m → 0; `estimate` is p."""
    chance = exposure * relevance  # P(click)
    return chance * (1 - chance) / (estimate**2 * (1 - exposure * estimate) ** 2)


Pointwise = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Loss:
    """A loss of (logit, click, exposure), its gradient with respect to the logit, its fast form.

    `kernel` is its name in the compiled engines; without one it runs on the reference engine.
    """

    value: Pointwise
    gradient: Pointwise
    kernel: str | None = None
    divides: bool = False  # by the exposure


LOSSES: dict[str, Loss] = {
    "inverse_propensity": Loss(
        inverse_propensity,
        inverse_propensity_gradient,
        kernel="inverse_propensity",
        divides=True,
    ),
    "low_variance": Loss(low_variance, low_variance_gradient, kernel="low_variance"),
    "inverse_propensity_squared": Loss(
        inverse_propensity_squared,
        inverse_propensity_squared_gradient,
        kernel="inverse_propensity_squared",
        divides=True,
    ),
    "low_variance_squared": Loss(
        low_variance_squared, low_variance_squared_gradient, kernel="low_variance_squared"
    ),
}


PairwiseFunction = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class PairwiseLoss:
    """A loss of (x_i − x_j, exposure of i), i clicked and j drawn; its gradient, its fast form."""

    value: PairwiseFunction
    gradient: PairwiseFunction
    kernel: str | None = None
    divides: bool = False  # by the exposure


PAIRWISE_LOSSES: dict[str, PairwiseLoss] = {
    "pairwise": PairwiseLoss(pairwise, pairwise_gradient, kernel="pairwise"),
    "inverse_propensity_pairwise": PairwiseLoss(
        inverse_propensity_pairwise,
        inverse_propensity_pairwise_gradient,
        kernel="inverse_propensity_pairwise",
        divides=True,
    ),
}


def kernel_of(loss: str) -> str | None:
    """The name of a loss in the compiled engines; None where it has no fast form."""
    return (PAIRWISE_LOSSES[loss] if loss in PAIRWISE_LOSSES else LOSSES[loss]).kernel


def divides_by_exposure(loss: str) -> bool:
    """Whether a loss divides by the exposure, and so needs the chance that a pair is shown."""
    return (PAIRWISE_LOSSES[loss] if loss in PAIRWISE_LOSSES else LOSSES[loss]).divides


def _no_click(logit: Tensor, exposure: Tensor) -> Tensor:
    """P(no click) = 1 − mp = (1 − m)·σ(x) + σ(−x): nothing cancels, even at m = 1."""
    return (1 - exposure) * sigmoid(logit) + sigmoid(-logit)


def _click_residual(logit: Tensor, click: Tensor, exposure: Tensor) -> Tensor:
    """c − mp: P(no click) for a click, −P(click) without one."""
    return torch.where(click > 0, _no_click(logit, exposure), -exposure * sigmoid(logit))


def _dislike_given_no_click(logit: Tensor, exposure: Tensor) -> Tensor:
    """P(not relevant | no click) = (1 − p)/(1 − mp) = σ(−x − log(1 − m)): 1 at m = 1, never 0/0."""
    return sigmoid(-logit - torch.log1p(-exposure))


def _relevance_over_no_click(logit: Tensor, exposure: Tensor) -> Tensor:
    """p/(1 − mp) = 1/(1 − m + e⁻ˣ)."""
    return 1 / (1 - exposure + torch.exp(-logit))

# mypy: ignore-errors
"""Loss, slopes and exposure of one pair, as in `losses.py` and `exposure.py`, for Triton kernels.

`x` is the logit, `clicked` a boolean, `m` the exposure. With z = e^−|x| ≤ 1 nothing overflows and
nothing cancels.
"""

import triton
import triton.language as tl

INVERSE_PROPENSITY, LOW_VARIANCE, INVERSE_PROPENSITY_SQUARED, LOW_VARIANCE_SQUARED, PAIRWISE = (
    tl.constexpr(i) for i in range(5)
)
INVERSE_PROPENSITY_PAIRWISE = tl.constexpr(5)
LOSS_CODES = {  # by `kernel_of`; from PAIRWISE on, of pairwise losses
    "inverse_propensity": INVERSE_PROPENSITY,
    "low_variance": LOW_VARIANCE,
    "inverse_propensity_squared": INVERSE_PROPENSITY_SQUARED,
    "low_variance_squared": LOW_VARIANCE_SQUARED,
    "pairwise": PAIRWISE,
    "inverse_propensity_pairwise": INVERSE_PROPENSITY_PAIRWISE,
}


@triton.jit
def sigmoids(x):
    """σ(x) and σ(−x)."""
    z = tl.exp(-tl.abs(x))
    high, low = 1 / (1 + z), z / (1 + z)
    return tl.where(x >= 0, high, low), tl.where(x >= 0, low, high)


@triton.jit
def log_sigmoids(x):
    """log σ(x) and log σ(−x)."""
    rest = tl.log(1 + tl.exp(-tl.abs(x)))
    return tl.minimum(x, 0.0) - rest, tl.minimum(-x, 0.0) - rest


@triton.jit
def _dislike_given_no_click(x, m):
    """(1 − p)/(1 − mp) = z/(1 − m + z) for x ≥ 0, 1/((1 − m)z + 1) below; 1 at m = 1."""
    z, unseen = tl.exp(-tl.abs(x)), 1 - m
    value = tl.where(x >= 0, z, 1.0) / tl.where(x >= 0, unseen + z, unseen * z + 1)
    return tl.where(unseen == 0, 1.0, value)


@triton.jit
def _relevance_over_no_click(x, m):
    """p/(1 − mp) = 1/(1 − m + e⁻ˣ)."""
    z, unseen = tl.exp(-tl.abs(x)), 1 - m
    return tl.where(x >= 0, 1.0, z) / tl.where(x >= 0, unseen + z, unseen * z + 1)


@triton.jit
def exposure_slope(x, clicked, m):
    """∂L2/∂m."""
    return tl.where(clicked, -1 / m, _relevance_over_no_click(x, m))


@triton.jit
def cross_slope(x, clicked, m):
    """∂²L2/∂x∂m."""
    return tl.where(clicked, 0.0, _relevance_over_no_click(x, m) * _dislike_given_no_click(x, m))


@triton.jit
def loss_and_slope(LOSS: tl.constexpr, x, clicked, m):
    """The loss and ∂loss/∂x."""
    p, q = sigmoids(x)
    log_p, log_q = log_sigmoids(x)
    if LOSS == LOW_VARIANCE:
        loss = tl.where(clicked, -tl.log(m) - log_p, -tl.log((1 - m) * p + q))
        slope = tl.where(clicked, -q, m * p * _dislike_given_no_click(x, m))
    elif LOSS == LOW_VARIANCE_SQUARED:
        residual = tl.where(clicked, (1 - m) * p + q, -m * p)
        loss, slope = residual * residual, -2 * m * p * q * residual
    else:
        weight = tl.where(clicked, 1 / m, 0.0)
        slope = (1 - weight) * p - weight * q
        if LOSS == INVERSE_PROPENSITY:
            loss = -weight * log_p - (1 - weight) * log_q
        else:
            tl.static_assert(LOSS == INVERSE_PROPENSITY_SQUARED)
            loss = weight * q * q + (1 - weight) * p * p
            slope *= 2 * p * q
    return loss, slope


@triton.jit
def pairwise_scale(LOSS: tl.constexpr, m):
    """What a pairwise loss is multiplied by, m being the exposure of the clicked item."""
    return 1 / m if LOSS == INVERSE_PROPENSITY_PAIRWISE else tl.full(m.shape, 1.0, m.dtype)


@triton.jit
def gated(gate_logit, seen_logit, popularity):
    """m = r·s + (1 − r)·θ, its slope in the seen logit and its slope in the gate's."""
    r, not_r = sigmoids(gate_logit)
    s, not_s = sigmoids(seen_logit)
    m = r * s + (1 - r) * popularity
    return m, r * s * not_s, (s - popularity) * r * not_r

"""Losses, exposures and slopes of one pair: `losses.py` and `exposure.py` in closed form, float64.

Everything is a sum or quotient of non-negative terms in t = e⁻ˣ and the chance q = 1 − m that the
item was not shown: p = 1/(1 + t), 1 − p = t/(1 + t), 1 − mp = (q + t)/(1 + t). Nothing cancels.
"""

import math
from typing import Any

import numpy as np

from unexposed.engine.cpu.compile import Array, jit, jit_as_written, jit_inline

# Codes of the losses that have a fast form, by `kernel_of`; from PAIRWISE on, of pairwise losses
LOSS_CODES = {
    "inverse_propensity": 0,
    "low_variance": 1,
    "inverse_propensity_squared": 2,
    "low_variance_squared": 3,
    "pairwise": 4,
    "inverse_propensity_pairwise": 5,
}
INVERSE_PROPENSITY, LOW_VARIANCE, INVERSE_PROPENSITY_SQUARED, LOW_VARIANCE_SQUARED, PAIRWISE, _ = (
    LOSS_CODES.values()
)
MOST_EXPONENT = 300.0  # products of two e^±300 are finite; p is 0 or 1 in every digit long before


@jit_as_written
def exponential(x: float) -> float:
    """eˣ to the last digit, without a branch: loops over it become vector instructions.

    x = n·log 2 + r with |r| < 0.35; eʳ by its series, 2ⁿ by writing n into the exponent bits.
    """
    shifted = x / LOG_2 + ROUNDING  # n stands in the lowest bits
    n = shifted - ROUNDING
    r = (x - n * LOG_2_HIGH) - n * LOG_2_LOW
    series = C13
    series = series * r + C12
    series = series * r + C11
    series = series * r + C10
    series = series * r + C9
    series = series * r + C8
    series = series * r + C7
    series = series * r + C6
    series = series * r + C5
    series = series * r + C4
    series = series * r + C3
    series = series * r + C2
    series = (series * r + 1.0) * r + 1.0
    bits = np.int64((np.float64(shifted).view(np.int64) + np.int64(1023)) << np.int64(52))
    return series * np.int64(bits).view(np.float64)


LOG_2, LOG_2_HIGH, LOG_2_LOW = math.log(2), 6.93147180369123816490e-01, 1.90821492927058770002e-10
ROUNDING = 1.5 * 2.0**52
C2, C3, C4, C5, C6, C7, C8, C9, C10, C11, C12, C13 = (1 / math.factorial(k) for k in range(2, 14))


@jit_as_written
def logarithm(x: float) -> float:
    """log x of a positive x, without a branch as in `exponential`; NaN stays NaN.

    x = 2ⁿ·y with y in [√½, √2); log y = 2·artanh s = 2·(s + s³/3 + …), s = (y − 1)/(y + 1).
    """
    bits = np.float64(x).view(np.int64) - ROOT_HALF_BITS
    n = float(bits >> np.int64(52))
    y = np.int64((bits & MANTISSA) + ROOT_HALF_BITS).view(np.float64)
    s = (y - 1.0) / (y + 1.0)
    square = s * s
    series = 1 / 21
    series = series * square + 1 / 19
    series = series * square + 1 / 17
    series = series * square + 1 / 15
    series = series * square + 1 / 13
    series = series * square + 1 / 11
    series = series * square + 1 / 9
    series = series * square + 1 / 7
    series = series * square + 1 / 5
    series = series * square + 1 / 3
    return n * LOG_2 + 2 * (s + s * square * series) + (x - x)


ROOT_HALF_BITS = np.int64(np.float64(math.sqrt(0.5)).view(np.int64))
MANTISSA = np.int64(2**52 - 1)


@jit_inline
def odds_against(logit: Any) -> float:
    """t = e⁻ˣ = (1 − p)/p."""
    return exponential(-max(-MOST_EXPONENT, min(MOST_EXPONENT, float(logit))))


@jit
def all_odds_against(logit: Array, odds: Array, begin: int, end: int) -> None:
    for k in range(np.uint64(begin), np.uint64(end)):
        odds[k] = odds_against(logit[k])


@jit_inline
def low_variance_slope(t: float, click: Any, m: float, q: float) -> float:
    """`losses.low_variance_gradient`: −(1 − p) for a click, mp(1 − p)/(1 − mp) without one."""
    return t / (1 + t) * (-1.0 if click > 0 else m / (q + t))


@jit_inline
def low_variance_exposure_slope(t: float, click: Any, m: float, q: float) -> float:
    """`losses.low_variance_exposure_gradient`: −1/m for a click, p/(1 − mp) without one."""
    if click > 0:
        return -1 / m
    return 1 / (q + t)


@jit_inline
def low_variance_cross_slope(t: float, click: Any, q: float) -> float:
    """`losses.low_variance_cross_gradient`: 0 for a click, p(1 − p)/(1 − mp)² without one."""
    if click > 0:
        return 0.0
    return t / (q + t) / (q + t)


@jit_inline
def low_variance_value(t: float, click: Any, m: float, q: float) -> float:
    """`losses.low_variance`: −log(mp) for a click, −log(1 − mp) without one."""
    return -logarithm((m if click > 0 else q + t) / (1 + t))


@jit_inline
def value_and_slope(loss: int, logit: float, t: float, click: Any, m: float) -> tuple[float, float]:
    """L and ∂L/∂x of one pair, as in `losses.LOSSES`, where the exposure is given."""
    q = 1 - m
    if loss == LOW_VARIANCE:
        return low_variance_value(t, click, m, q), low_variance_slope(t, click, m, q)
    p, not_p = 1 / (1 + t), t / (1 + t)
    if loss == LOW_VARIANCE_SQUARED:  # (c − mp)²
        residual = q * p + not_p if click > 0 else -m * p
        return residual * residual, -2 * m * p * not_p * residual
    weight = click / m
    slope = (1 - weight) * p - weight * not_p  # p − c/m
    if loss == INVERSE_PROPENSITY:
        return (1 - weight) * logit - logarithm(p), slope  # log(1 − p) = log p − x
    if loss == INVERSE_PROPENSITY_SQUARED:
        return weight * not_p * not_p + (1 - weight) * p * p, 2 * p * not_p * slope
    return math.nan, math.nan  # not a loss of `LOSS_CODES`


@jit_inline
def pairwise_scale(loss: int, m: float) -> float:
    """What a pairwise loss is multiplied by, m being the exposure of the clicked item."""
    return 1.0 if loss == PAIRWISE else 1 / m


@jit
def slopes_if_shown(logit: Array, slope: Array, scale: float, n: int) -> None:
    """scale·∂L2/∂x at m = 1, −(1 − p) where relevant and p where not, in place of `relevant`."""
    for k in range(np.uint64(n)):
        t = odds_against(logit[k])
        slope[k] = scale * (-t if slope[k] > 0 else 1.0) / (1 + t)


@jit_inline
def gated(gate: float, rest: float, seen_odds: float, popularity: float) -> tuple[float, float]:
    """m and 1 − m of `exposure.gated`: r·s + (1 − r)·θ and r·(1 − s) + (1 − r)·(1 − θ)."""
    seen = 1 / (1 + seen_odds)
    m = gate * seen + rest * popularity
    return m, gate * (seen_odds * seen) + rest * (1 - popularity)


@jit_inline
def through_gate(
    slope: float, gate: float, rest: float, seen: float, unseen: float, popularity: float
) -> tuple[float, float]:
    """A slope in m carried into the logits of s and of r, given 1 − r and 1 − s.

    ∂m/∂ of the logit of s is r·s(1 − s), of the logit of r (s − θ)·r(1 − r).
    """
    return slope * gate * seen * unseen, slope * (seen - popularity) * gate * rest

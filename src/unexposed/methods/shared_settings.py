"""Settings that several methods share."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from unexposed.methods.exposures import Popularity
from unexposed.methods.known import ExposureFrom
from unexposed.sampling.samples import Drawing, Source, Weighting
from unexposed.settings import setting


@dataclass(frozen=True)
class PairSettings:
    """Settings of methods that learn from single pairs; their score is a logit."""

    scale: ClassVar[Literal["logit", "probability", "order"]] = "logit"
    pairs: Literal["sampled", "all"] = setting("sampled", "drawn negatives, or the whole matrix")
    weighting: Weighting = setting(
        "none",
        "or weigh the drawn negatives, always unclicked ones, to stand for all unclicked pairs",
        search=["none", "unbiased"],
    )

    def pair_drawing(self, negatives: int, source: Source, exponent: float = 0.0) -> Drawing:
        return Drawing(
            negatives,
            self.weighting,
            every_pair=self.pairs == "all",
            source="unclicked" if self.weighting == "unbiased" else source,
            exponent=exponent,
        )


@dataclass(frozen=True)
class PopularitySettings:
    """Settings of methods whose exposure is, or starts from, the popularity θ of an item."""

    popularity_exponent: float = setting(
        0.5, "of θ = (clicks / most clicks)^exponent", low=0, search=(0.05, 1)
    )
    popularity_floor: float = setting(
        0.01, "least θ, which items without clicks get", above=0, high=1
    )

    exposure_from: ExposureFrom = setting(
        "auto",
        "exposure of single pairs: modelled; 1 − (1 − a)^n where shown n times and not clicked; "
        "the logged propensity; auto: shown where the log has impressions",
    )
    attention: float = setting(
        0.0,
        "a, the chance that a shown item is seen; 0: learned from repeated showings",
        low=0,
        high=1,
    )

    def popularity(self) -> Popularity:
        return Popularity(self.popularity_exponent, self.popularity_floor)

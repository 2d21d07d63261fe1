"""The exact two-sided interval of a rate whose verdicts are independent, and the names of the methods.

Imports scipy and nothing of this package: counts go in, bounds come out. `spacing` bounds verdicts that come in
clusters; `metrics` and `slices` count, `advice` counts what more evidence would show, `gate` reads the bounds.
"""

from dataclasses import dataclass

STATISTICS_VERSION = "5"
"""Changes whenever some bound computed here changes."""

EXACT = "clopper_pearson_missing_bounded@1"
SPACING = "spacing_bound@1"

FEWEST_CLUSTERS = 20
"""A clustered suite wants at least that many source cases, each a cluster of its own."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds of a rate, 0 <= lower <= upper <= 1, and the name of the method that gave them."""

    lower: float
    upper: float
    method: str


def clopper_pearson_missing_bounded(
    passed: float, observed: float, missing: float, confidence_level: float
) -> Interval:
    """The exact interval of a rate whose missing verdicts may have come out either way.

    The lower bound is Clopper and Pearson's for `passed` of observed + missing (every missing verdict failed), the
    upper one theirs for passed + missing of the same (every missing verdict passed). Assumes independent verdicts;
    the level is then held at every n, down to one verdict, and exceeded at most. Where nothing passed the lower
    bound is exactly 0, where nothing failed the upper one exactly 1; where nothing was asked, all of [0, 1] remains.
    Counts may be real: `advice` scales them.

    Clopper, Pearson (1934): The use of confidence or fiducial limits illustrated in the case of the binomial.
    Biometrika 26, 404-413. Worst-case bounds of missing outcomes: Horowitz, Manski (2000), JASA 95, 77-84.

    Raises:
        ValueError: a count is negative, `passed` exceeds `observed`, or the level is not in (0, 1).

    >>> interval = clopper_pearson_missing_bounded(16, 20, 4, 0.95)
    >>> round(interval.lower, 4), round(interval.upper, 4)
    (0.4468, 0.9526)
    """
    tail = tail_of(confidence_level)
    if not (0 <= passed <= observed and missing >= 0):
        raise ValueError(f"{passed} passed of {observed} observed and {missing} missing are no counts of one suite")
    eligible = observed + missing
    failed = observed - passed
    return Interval(
        lower=_lower(passed, eligible, tail),
        upper=_upper(failed, eligible, tail),
        method=EXACT,
    )


# scipy is imported where a bound is asked for: reading or reusing a run's tables asks for none.


def _lower(passed: float, n: float, tail: float) -> float:
    """Clopper and Pearson's lower bound."""
    from scipy.special import betaincinv

    return float(betaincinv(passed, n - passed + 1, tail)) if passed else 0.0


def _upper(failed: float, n: float, tail: float) -> float:
    """Clopper and Pearson's upper bound."""
    from scipy.special import betainccinv

    return float(betainccinv(n - failed + 1, failed, tail)) if failed else 1.0


def tail_of(confidence_level: float) -> float:
    """The chance that a two-sided level leaves to either side.

    Raises:
        ValueError: the level is not in (0, 1).
    """
    if not 0 < confidence_level < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, both excluded; found {confidence_level}")
    return (1 - confidence_level) / 2

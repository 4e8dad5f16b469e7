"""The weights of several texts: ratios that a user gives, and the whole numbers that counts are multiplied by."""

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import gcd, lcm

from tokengraft.errors import OptionError, option, require_list

LARGEST_WEIGHT = 10**15
"""Weights are below it."""


def as_weight(weight: int | Fraction | str) -> Fraction:
    """A weight as a ratio of whole numbers."""
    # The length is checked first: `Fraction("1e9999999")` would take minutes.
    match = re.fullmatch(r"[0-9]{1,15}(?:/([0-9]{1,15})|\.[0-9]{1,15})?", str(weight))
    ratio = Fraction(match[0]) if match and int(match[1] or 1) else Fraction(0)
    if isinstance(weight, bool) or not ratio:
        raise OptionError(
            f"the weight {weight!r} is not a number above 0 with at most 15 digits",
            hint="pass a whole number or a ratio: 2, 1/3",
        )
    return ratio


def whole_weights(weights: Iterable[int | Fraction | str]) -> list[int]:
    """The smallest whole numbers that have the ratio of the weights, so that no count is rounded.

    >>> whole_weights([1, "1/3"]), whole_weights([6, 2]), whole_weights(["0.5"])
    ([3, 1], [3, 1], [1])
    """
    require_list("weights", weights, "numbers")
    given = [*weights]
    whole = whole_ratio([as_weight(weight) for weight in given])
    if whole and max(whole) >= LARGEST_WEIGHT:
        raise OptionError(
            f"the weights {', '.join(map(str, given))} need factors of {len(str(max(whole)))} digits as whole numbers; "
            "15 are allowed",
            hint="round the weights, as in 2 and 1/3",
        )
    return whole


def factors_for(n: int, weights: Sequence[int | Fraction | str]) -> list[int]:
    """The weights of n texts as whole numbers. Call it before the texts are counted, which may take an hour."""
    factors = whole_weights(weights)
    if len(factors) != n:
        raise OptionError(
            f"{len(factors)} weights were given for {n} texts", hint=f"give one {option('weight')} for each"
        )
    return factors


def whole_ratio(ratios: Sequence[Fraction]) -> list[int]:
    """The smallest whole numbers that have the same ratio: ``[1/2, 1/3] -> [3, 2]``."""
    common = lcm(*(ratio.denominator for ratio in ratios))
    whole = [ratio.numerator * (common // ratio.denominator) for ratio in ratios]
    return [number // gcd(*whole) for number in whole]

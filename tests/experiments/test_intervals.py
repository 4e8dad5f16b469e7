"""Bootstrap intervals: against a case with a known answer, and how often they contain the truth."""

import numpy as np
import pytest

from lab.experiments.intervals import (
    Interval,
    change_of_runs,
    extremes,
    gain_columns,
    gain_of,
    gains_of,
    paired_change,
    points_of_runs,
)


def test_an_equal_ratio_on_every_line_has_no_spread():
    lines = [1.0, 5.0, 9.0]
    found = paired_change([1.1 * x for x in lines], lines)
    assert (found.value, found.low, found.high) == pytest.approx((0.1, 0.1, 0.1))
    assert found.above_zero
    assert not found.below_zero


def test_the_interval_contains_the_true_change_about_19_times_in_20():
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(60):
        theirs = generator.gamma(4, size=300)
        ours = 1.02 * theirs + generator.normal(0, 0.5, 300)
        found = paired_change(ours, theirs)
        covered += found.low <= 0.02 <= found.high
    assert 51 <= covered <= 60


def test_noise_around_no_change_is_neither_above_nor_below_zero():
    generator = np.random.default_rng(1)
    theirs = generator.gamma(4, size=500)
    found = paired_change(theirs + generator.permutation(np.repeat([-0.3, 0.3], 250)), theirs)
    assert not found.above_zero
    assert not found.below_zero
    assert str(found) == f"0.0 % [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"


def test_lines_that_cannot_be_paired_are_refused():
    with pytest.raises(ValueError, match="2 and 1 values"):
        paired_change([1.0, 2.0], [1.0])


def test_the_interval_of_three_runs_contains_the_true_change_about_19_times_in_20():
    generator, covered = np.random.default_rng(0), 0
    for _ in range(80):
        lines = generator.gamma(4, size=300)
        sides = [[lines * factor * generator.normal(1, 0.01) for _ in range(3)] for factor in (1.02, 1.0)]
        found = change_of_runs(*sides)
        covered += found.low <= 0.02 <= found.high
    assert 72 <= covered <= 80


def test_a_difference_in_points():
    found = points_of_runs([[1, 1, 1, 0]] * 3, [[1, 0, 1, 0]] * 3)
    assert found.value == 0.25
    assert found.low < 0.25 < found.high
    assert str(found.points()).startswith("+25.0 [")


def test_fewer_tokens_are_a_gain_that_a_row_keeps():
    row = gain_columns([10, 10], [11, 11], "over_naive")
    assert gain_of(row, "over_naive") == Interval(*map(pytest.approx, (0.1, 0.1, 0.1)))
    assert len(gains_of([row, {"over_naive": None}, {}], "over_naive", "gain")) == 1


def test_a_difference_is_within_a_limit_only_if_its_interval_is():
    assert Interval(0.001, -0.004, 0.004).within(0.005)
    assert not Interval(0.001, -0.006, 0.004).within(0.005)
    assert not Interval(0.001, -0.004, 0.006).within(0.005)


def test_the_extremes_are_shown_with_their_intervals():
    found = [Interval(0.02, 0.01, 0.03), Interval(-0.0012, -0.002, 0.0), Interval(0.01, 0.0, 0.02)]
    assert extremes(found) == "-0.1 % [-0.2, 0.0] to +2.0 % [+1.0, +3.0]"
    assert extremes(found[1:2], 2) == "-0.12 % [-0.20, 0.00] to -0.12 % [-0.20, 0.00]"

"""Known values of the tests that samples are judged by."""

from __future__ import annotations

import pytest
import torch

from paceline.check.chisquare import detectable, fit, holm, noncentral_tail, tail


@pytest.mark.parametrize(
    ("statistic", "freedom", "right"),
    [(3.841459, 1, 0.05), (18.307038, 10, 0.05), (23.209251, 10, 0.01), (149.449, 100, 0.001)],
)
def test_tables(statistic: float, freedom: int, right: float) -> None:
    assert tail(statistic, freedom) == pytest.approx(right, rel=1e-4)


def test_pearsons_statistic() -> None:
    found = fit(torch.tensor([25, 35, 40]), torch.tensor([0.3, 0.3, 0.4]))
    assert (found.statistic, found.freedom) == (pytest.approx(50 / 30), 2)
    assert found.p_value == pytest.approx(tail(50 / 30, 2))
    assert found.distance == pytest.approx(0.05)


def test_bins_that_expect_little_are_pooled() -> None:
    p = torch.tensor([0.5, 0.4, 0.03, 0.03, 0.04])  # of 100: 3, 3 and 4 together are 10
    assert fit(torch.tensor([50, 40, 10, 0, 0]), p).statistic == pytest.approx(0, abs=1e-6)
    p = torch.tensor([0.5, 0.46, 0.04])  # 4 go with the smaller of the others
    found = fit(torch.tensor([50, 40, 10]), p)
    assert (found.freedom, found.statistic) == (1, pytest.approx(0, abs=1e-6))


def test_what_cannot_be_is_no_matter_of_chance() -> None:
    found = fit(torch.tensor([999, 1, 0]), torch.tensor([0.5, 0.0, 0.5]))
    assert found.p_value == 0
    assert fit(torch.tensor([7, 0]), torch.tensor([1.0, 0.0])).p_value == 1


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1, 1]
    assert holm([]) == []


def test_noncentral_tail() -> None:
    # a squared normal with mean 3, one degree of freedom: P(|Z + 3| > 1.959964)
    normal = torch.distributions.Normal(0.0, 1.0)
    right = 1 - normal.cdf(torch.tensor(-1.040036)) + normal.cdf(torch.tensor(-4.959964))
    assert noncentral_tail(3.841459, 1, 9.0) == pytest.approx(float(right), abs=1e-5)
    assert noncentral_tail(18.307038, 10, 0.0) == pytest.approx(0.05, rel=1e-4)


def test_a_detectable_bias_is_detected() -> None:
    """At the bias that it names, spread as is hardest to see, 9 of 10 samples are told apart."""
    bins, rounds, alpha = 20, 2000, 0.01
    shift = detectable(bins - 1, rounds, alpha)
    p = torch.full((bins,), 1 / bins)
    sign = torch.tensor([1.0, -1.0]).repeat(bins // 2)
    wrong = p * (1 + 2 * shift * sign)
    assert float((wrong - p).abs().sum()) / 2 == pytest.approx(shift)
    make = torch.Generator().manual_seed(0)
    samples = torch.multinomial(wrong.expand(400, bins), rounds, True, generator=make)
    counts = torch.stack([torch.bincount(row, minlength=bins) for row in samples])
    seen = sum(fit(row, p).p_value < alpha for row in counts)
    assert 0.84 <= seen / 400 <= 0.96
    assert detectable(bins - 1, 4 * rounds, alpha) == pytest.approx(shift / 2, rel=1e-6)

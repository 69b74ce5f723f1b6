"""The two divergences, by value."""

from __future__ import annotations

import pytest
import torch

from paceline.distill.losses import check_tv, divergence
from paceline.errors import PacelineError

P = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
Q = torch.tensor([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])


def test_kl_is_zero_where_q_is_p_and_right_elsewhere() -> None:
    right = 0.5 * torch.log(torch.tensor(0.5 / 0.2)) + 0.2 * torch.log(torch.tensor(0.2 / 0.5))
    assert float(divergence(P.log(), Q.log())) == pytest.approx(float(right), abs=1e-6)
    assert float(divergence(P.log(), P.log())) == pytest.approx(0, abs=1e-6)


def test_total_variation_is_what_an_accept_test_loses() -> None:
    right = 0.5 * float((P - Q).abs().sum())
    assert float(divergence(P.log(), Q.log(), 1.0)) == pytest.approx(right, abs=1e-6)


def test_a_share_is_in_between() -> None:
    kl, tv = (float(divergence(P.log(), Q.log(), share)) for share in (0.0, 1.0))
    half = float(divergence(P.log(), Q.log(), 0.25))
    assert half == pytest.approx(0.75 * kl + 0.25 * tv, abs=1e-6)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(PacelineError, match="from 0 to 1"):
        check_tv(share)

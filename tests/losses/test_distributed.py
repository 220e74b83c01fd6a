"""Several gloo processes with a share of the batch each against one process with all of it."""

import pytest
import torch
from distributed_losses import ROWS, count_inside_the_band, losses_and_gradients
from processes import run_processes


def test_counts_of_two_processes_add_up_to_that_of_one():
    whole = count_inside_the_band(0, (ROWS,))
    assert 0 < whole < ROWS * (ROWS - 1)
    assert sum(run_processes(2, count_inside_the_band, (7, 5))) == whole


@pytest.mark.parametrize(
    "shares",
    [
        pytest.param((7, 5), id="ragged shares"),
        pytest.param((6, 6), id="equal shares", marks=pytest.mark.full),
    ],
)
def test_two_processes_agree_with_one(shares):
    assert sum(shares) == ROWS
    whole = losses_and_gradients(0, (ROWS,))
    ranks = run_processes(2, losses_and_gradients, shares)
    for case, (value, gradient) in whole.items():
        # The mean over ranks is what data parallel training takes.
        mean_value = sum(rank[case][0] for rank in ranks) / 2
        mean_gradient = sum(torch.tensor(rank[case][1], dtype=torch.float64) for rank in ranks) / 2
        assert mean_value == pytest.approx(value, abs=1e-9), case
        torch.testing.assert_close(
            mean_gradient,
            torch.tensor(gradient, dtype=torch.float64),
            rtol=1e-9,
            atol=1e-9,
            msg=str(case),
        )

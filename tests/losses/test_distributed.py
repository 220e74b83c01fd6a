"""Several gloo processes with a share of the batch each against one process with all of it."""

import pytest
import torch
from distributed_losses import ROWS, beside_lightly, everything_of_one_rank
from processes import run_processes


@pytest.mark.parametrize(
    "shares",
    [
        pytest.param((7, 5), id="ragged shares"),
        pytest.param((6, 6), id="equal shares", marks=pytest.mark.full),
        pytest.param((5, 1, 4, 2), id="four ragged shares", marks=pytest.mark.full),
    ],
)
def test_several_processes_agree_with_one(shares):
    """Values, gradients and second derivatives of both forms, and counts of pairs in a band."""
    assert sum(shares) == ROWS
    whole, count = everything_of_one_rank(0, (ROWS,))
    of_ranks = run_processes(len(shares), everything_of_one_rank, shares)
    for case, numbers in whole.items():
        # The mean over ranks is what data parallel training takes.
        ranks = torch.tensor([found[case] for found, _ in of_ranks], dtype=torch.float64)
        expected = torch.tensor(numbers, dtype=torch.float64)
        torch.testing.assert_close(ranks.mean(dim=0), expected, rtol=1e-9, atol=1e-9, msg=str(case))
    assert 0 < count < ROWS * (ROWS - 1)
    assert sum(of_rank for _, of_rank in of_ranks) == count


def test_in_two_processes_it_is_lightlys_loss():
    """Losses, gradients and memory bank; the arguments stand where lightly's do."""
    pytest.importorskip("lightly")
    first, second = run_processes(2, beside_lightly)
    for (bank, gathers), of_first in first.items():
        of_second = second[bank, gathers]
        for theirs, ours in (of_first, of_second):
            expected = torch.tensor(theirs)
            torch.testing.assert_close(torch.tensor(ours), expected, rtol=1e-4, atol=1e-5)
        assert of_first[1][0] != of_second[1][0]
        if bank:
            keys = slice(-bank[0] * bank[1], None)
            assert (of_first[1][keys] == of_second[1][keys]) == gathers
    assert first[0, False] != first[0, True]

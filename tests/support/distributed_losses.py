"""What each process computes in the test of losses over several processes."""

import torch

from solo_margins.losses import (
    MarginNTXentLoss,
    Margins,
    distance_polarization_loss_func,
    distance_polarization_with_count,
    generalized_info_nce_loss_func,
    mocov2plus_margin_loss_func,
    mocov3_margin_loss_func,
    nnclr_margin_loss_func,
    simclr_debiased_loss_func,
    simclr_hard_negative_loss_func,
    simclr_margin_loss_func,
)

ROWS, WIDTH, OUT = 12, 6, 5
MARGINS = [Margins(), Margins(0.3, 0.2, 5.0, 1.5, 0.5), Margins(attenuation=1.0)]


def data():
    generator = torch.Generator().manual_seed(0)
    shape = (ROWS, WIDTH)
    return [torch.randn(shape, dtype=torch.float64, generator=generator) for _ in range(2)]


def loss_functions(margins):
    """Return every loss as a function of student output, teacher output and sample ids."""

    def views(first, second, ids):
        return torch.cat([first, second]), ids.repeat(2)

    queue = torch.randn(OUT, 9, generator=torch.Generator().manual_seed(2))
    return {
        "mocov2plus": lambda a, b, ids: mocov2plus_margin_loss_func(a, b, queue, 0.2, margins),
        "nnclr": lambda a, b, ids: nnclr_margin_loss_func(b.detach(), a, 0.2, margins),
        "nnclr both": lambda a, b, ids: nnclr_margin_loss_func(b, a, 0.2, margins),
        "mocov3": lambda a, b, ids: mocov3_margin_loss_func(a, b.detach(), 0.2, margins),
        "mocov3 tiled": lambda a, b, ids: mocov3_margin_loss_func(a, b.detach(), 0.2, margins, 2),
        "generalized": lambda a, b, ids: generalized_info_nce_loss_func(
            a, b.detach(), 0.2, 0.5, margins
        ),
        "simclr": lambda a, b, ids: simclr_margin_loss_func(*views(a, b, ids), 0.1, margins),
        "simclr tiled": lambda a, b, ids: simclr_margin_loss_func(
            *views(a, b, ids), 0.1, margins, 3
        ),
        "classes": lambda a, b, ids: simclr_margin_loss_func(a, ids // 5, 0.1, margins),
        "debiased": lambda a, b, ids: simclr_debiased_loss_func(
            *views(a, b, ids), 0.5, 0.1, margins
        ),
        "hard": lambda a, b, ids: simclr_hard_negative_loss_func(
            *views(a, b, ids), 0.5, 0.1, 1.0, margins
        ),
        "polarization": lambda a, b, ids: distance_polarization_loss_func(
            torch.cat([a, b]), 0.1, 0.9
        ),
        "module": lambda a, b, ids: MarginNTXentLoss(0.5, margins)(a, b),
    }


def rows_of(rank, shares):
    start = sum(shares[:rank])
    return slice(start, start + shares[rank])


def count_inside_the_band(rank, shares):
    """Return this rank's share of the pairs inside a band."""
    first, _ = data()
    return distance_polarization_with_count(first[rows_of(rank, shares)], 0.3, 0.5)[1].item()


def losses_and_gradients(rank, shares):
    """Return {(margins, loss): (value, gradient of the weights)} for this rank's share of rows."""
    first, second = data()
    mine = rows_of(rank, shares)
    ids = torch.arange(ROWS)[mine]
    found = {}
    for number, margins in enumerate(MARGINS):
        for name, loss in loss_functions(margins).items():
            generator = torch.Generator().manual_seed(1)
            weights = torch.randn(WIDTH, OUT, dtype=torch.float64, generator=generator)
            weights.requires_grad_()
            value = loss(first[mine] @ weights, second[mine] @ weights, ids)
            value.backward()
            found[number, name] = (value.item(), weights.grad.tolist())
    return found

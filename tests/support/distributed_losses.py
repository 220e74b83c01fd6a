"""What each process computes in the test of losses over several processes."""

import warnings
from dataclasses import replace
from itertools import product

import torch
from loss_calls import FORMS, OF_BOTH_VIEWS, Settings, every_effect, focal, vectors
from naive_losses import of_rows

from solo_margins.losses import (
    MarginNTXentLoss,
    Margins,
    aligned_temperature,
    aligned_temperature_by_indexes,
    distance_polarization_with_count,
)

ROWS, WIDTH, OUT = 12, 6, 5
CASES = [
    Settings(0.2, Margins(0.3, 0.2, 5.0, 1.5, 0.5, scaling=focal)),
    Settings(torch.tensor(0.1), Margins(attenuation=1.0)),
]
OF_ONE_PROCESS = ("deepclusterv2", "byol", "simsiam")
"""Losses that take the mean over the rows of one process, whatever the others have."""
KEYS_WITHOUT_GRADIENT = ("mocov3", "mocov3 hard", "mocov3 gaussian", "generalized")


def everything_of_one_rank(rank, shares, device="cpu"):
    """Return the numbers of every loss for this rank's share of the rows, and a count.

    The numbers are value, gradient of the weights, and gradient of a penalty on the gradient, in
    one list of float64; the count is that of pairs inside a band.
    """
    warnings.simplefilter("error", FutureWarning)  # of collectives that torch deprecates
    start = sum(shares[:rank])
    mine = slice(start, start + shares[rank])
    first, second = (vectors(ROWS, seed, WIDTH)[mine].to(device) for seed in (0, 1))
    numbers = torch.arange(ROWS, device=device)[mine]
    more = {"ids": numbers, "assignments": numbers % 9, "others": vectors(9, 2, OUT).to(device)}
    found = {}
    for form, calls in FORMS.items():
        for name, loss in calls.items():
            if name in OF_ONE_PROCESS:
                continue
            for number, case in enumerate(CASES):
                settings = replace(case, tile_size=2, **more)
                found[form, name, number] = _numbers(name, loss, first, second, settings)
            settings = Settings(margins=_of_rows(name, mine), tile_size=2, **more)
            found[form, name, "by row"] = _numbers(name, loss, first, second, settings)
    found["aligned"] = [aligned_temperature(first, second, 0.2, 0.8, 0.3).item()]
    indexes = torch.arange(ROWS, device=device)[mine] % 5
    found["aligned by indexes"] = [
        aligned_temperature_by_indexes(first, indexes, 0.2, 0.8, 0.3).item()
    ]
    return found, distance_polarization_with_count(first, 0.3, 0.5)[1].item()


def _of_rows(name, mine):
    """Return margins by row of which a rank has those of its own rows, view after view."""
    rows = torch.arange(ROWS)[mine]
    if name in OF_BOTH_VIEWS:
        rows = torch.cat([rows, rows + ROWS])
    return of_rows(every_effect(name, ROWS), rows)


def _numbers(name, loss, first, second, settings):
    weights = vectors(WIDTH, 3, OUT).to(first.device).requires_grad_()
    z, target = first @ weights, second @ weights
    if name in KEYS_WITHOUT_GRADIENT:
        target = target.detach()
    value = loss(z, target, settings)
    (gradient,) = torch.autograd.grad(value, weights, retain_graph=True)
    (by_rows,) = torch.autograd.grad(value, z, create_graph=True)
    # In direction of fixed vectors, because a norm is not additive over ranks.
    (second_gradient,) = torch.autograd.grad((by_rows * z.detach().roll(1, 1)).sum(), weights)
    return [value.item(), *gradient.flatten().tolist(), *second_gradient.flatten().tolist()]


def beside_lightly(rank):
    """Return what lightly's module and ours compute, by the size of the bank and who is gathered.

    Both are lists: losses and gradients of three steps, and at the end the memory bank.
    """
    from lightly.loss import NTXentLoss

    mine = slice(4 * rank, 4 * rank + 4)
    found = {}
    for bank, gathers in product([0, (16, OUT)], [False, True]):
        for kind in (NTXentLoss, MarginNTXentLoss):
            torch.manual_seed(0)
            criterion = kind(0.3, bank, gathers)
            numbers = found.setdefault((bank, gathers), [])
            numbers.append([])
            for step in range(3):
                weights = vectors(WIDTH, 3, OUT).requires_grad_()
                query, key = (vectors(8, seed, WIDTH)[mine] @ weights for seed in (step, step + 3))
                loss = criterion(query.float(), (key.detach() if bank else key).float())
                (gradient,) = torch.autograd.grad(loss, weights)
                numbers[-1] += [loss.item(), *gradient.flatten().tolist()]
            if bank:
                keys = getattr(criterion, "memory_bank", criterion).bank
                numbers[-1] += keys.flatten().tolist()
    return found

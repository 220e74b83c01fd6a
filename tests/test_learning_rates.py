"""Linear warm-up and cosine, for every parameter group and for a warm-up of any length."""

import math

import pytest
import torch

from solo_margins.learning_rates import WarmupCosineLR

BASES = (1.0, 0.1)


def scheduled(warmup, total, first, last=0.001):
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": base} for base in BASES]
    optimizer = torch.optim.SGD(groups, lr=1.0)
    scheduler = WarmupCosineLR(optimizer, warmup, total, warmup_start_lr=first, eta_min=last)
    for step in range(total + 1):
        yield step, [group["lr"] for group in optimizer.param_groups]
        optimizer.step()
        scheduler.step()


def closed_form(step, base, warmup, total, first, last=0.001):
    if step < warmup:
        return first + (base - first) * (step / (warmup - 1) if warmup > 1 else 0)
    progress = (step - warmup) / (total - warmup)
    return last + (base - last) * (1 + math.cos(math.pi * progress)) / 2


@pytest.mark.parametrize(("warmup", "total"), [(0, 8), (1, 8), (3, 12), (5, 6)])
def test_every_group_follows_the_closed_form(warmup, total):
    first = 0.01
    for step, rates in scheduled(warmup, total, first):
        expected = [closed_form(step, base, warmup, total, first) for base in BASES]
        assert rates == pytest.approx(expected), step


@pytest.mark.parametrize("warmup", [2.5, 4, 7])
def test_a_warmup_of_any_length_stays_between_first_and_base_rate(warmup):
    for step, rates in scheduled(warmup, 4, first=0.01):
        for rate, base in zip(rates, BASES, strict=True):
            assert 0 <= rate <= base + 1e-12, step

"""Optimizer steps and schedules against formulas written out here."""

import math

import pytest
import torch
from host_internals import (
    LinearWarmupCosineAnnealingLR,
    needs_the_repository,
    only_on_the_release,
)

from solo_margins import host


def naive_lars(parameter, gradients, lr, momentum, decay, eta, clip, exclude, eps=1e-8):
    velocity = None
    for gradient in gradients:
        step = gradient.clone()
        if not (exclude and parameter.dim() == 1):
            w, g = math.sqrt((parameter**2).sum()), math.sqrt((gradient**2).sum())
            if w > 0 and g > 0:
                trust = eta * w / (g + decay * w + eps)
                if clip:
                    trust = min(trust / lr, 1.0)
                step = trust * (gradient + decay * parameter)
        velocity = step if velocity is None else momentum * velocity + step
        parameter = parameter - lr * (velocity if momentum else step)
    return parameter


@needs_the_repository
@pytest.mark.parametrize("shape", [(4, 3), (5,)])
@pytest.mark.parametrize("exclude", [False, True])
@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.9, 1e-2)])
def test_lars_takes_the_steps_of_its_formula(shape, exclude, clip, momentum, decay):
    from solo.utils.lars import LARS

    torch.manual_seed(0)
    start = torch.randn(shape, dtype=torch.float64)
    gradients = [torch.randn(shape, dtype=torch.float64) for _ in range(10)]
    settings = {"lr": 0.3, "momentum": momentum, "eta": 0.02}
    expected = naive_lars(start, gradients, 0.3, momentum, decay, 0.02, clip, exclude)

    parameter = torch.nn.Parameter(start.clone())
    optimizer = LARS(
        [parameter],
        weight_decay=decay,
        clip_lr=clip,
        exclude_bias_n_norm=exclude,
        **settings,
    )
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()
    torch.testing.assert_close(parameter.data, expected, rtol=1e-12, atol=1e-14)

    if not (exclude and len(shape) == 1):
        plain = torch.nn.Parameter(start.clone())
        sgd = torch.optim.SGD([plain], lr=0.3, momentum=momentum)
        for gradient in gradients:
            plain.grad = gradient.clone()
            sgd.step()
        assert not torch.allclose(parameter.data, plain.data)


@needs_the_repository
def test_lars_named_in_a_config_moves_the_weights_by_its_formula(config, loaders, trainer):
    cfg = config(
        "simclr",
        "optimizer.name=lars",
        "optimizer.kwargs.eta=0.02",
        "optimizer.weight_decay=0.01",
        "scheduler.name=none",
        "max_epochs=1",
    )
    torch.manual_seed(0)
    model = host.SimCLR(cfg)
    before = model.projector[0].weight.detach().clone()
    seen = []
    model.on_before_optimizer_step = lambda optimizer: seen.append(
        model.projector[0].weight.grad.clone()
    )
    trainer(cfg, limit_train_batches=2, limit_val_batches=0).fit(model, *loaders(cfg))
    expected = naive_lars(before, seen, cfg.optimizer.lr, 0.9, 0.01, 0.02, False, False)
    torch.testing.assert_close(model.projector[0].weight.data, expected, rtol=1e-5, atol=1e-7)


def closed_form(step, base, start, minimum, warmup, total):
    if step < warmup:
        return start + (base - start) * (step / (warmup - 1) if warmup > 1 else 0)
    progress = (step - warmup) / (total - warmup)
    return minimum + (base - minimum) * 0.5 * (1 + math.cos(math.pi * progress))


@only_on_the_release
@pytest.mark.parametrize(("warmup", "total"), [(0, 8), (1, 8), (3, 12), (5, 6)])
def test_warmup_cosine_follows_its_closed_form_for_every_group(warmup, total):
    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    groups = [{"params": [weights[0]]}, {"params": [weights[1]], "lr": 0.1}]
    optimizer = torch.optim.SGD(groups, lr=1.0)
    # The host passes the base rate as the first one when there is no warm-up.
    first = 0.01 if warmup else 1.0
    scheduler = LinearWarmupCosineAnnealingLR(
        optimizer, warmup, total, warmup_start_lr=first, eta_min=0.001
    )
    for step in range(total + 1):
        rates = [group["lr"] for group in optimizer.param_groups]
        expected = [closed_form(step, base, first, 0.001, warmup, total) for base in (1.0, 0.1)]
        assert rates == pytest.approx(expected), step
        optimizer.step()
        scheduler.step()


@only_on_the_release
@pytest.mark.parametrize("warmup", [4, 2.5, 7])
def test_a_warmup_of_any_length_stays_between_first_and_base_rate(warmup):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = LinearWarmupCosineAnnealingLR(optimizer, warmup, 4, warmup_start_lr=0.1)
    for _ in range(6):
        assert 0 <= optimizer.param_groups[0]["lr"] <= 1.0
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize("warmup", [0, 1])
def test_the_online_classifier_keeps_its_own_rate(config, loaders, trainer, warmup):
    cfg = config("simclr", f"scheduler.warmup_epochs={warmup}", "max_epochs=2")
    model = host.SimCLR(cfg)
    rates = []

    class Watch(host.pl.Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            groups = trainer.optimizers[0].param_groups
            rates.append({group["name"]: group["lr"] for group in groups})

    train, _ = loaders(cfg)
    trainer(cfg, [Watch()], limit_train_batches=3).fit(model, train)
    first = cfg.scheduler.warmup_start_lr if warmup else None
    for step, seen in enumerate(rates):
        for name, base in (
            ("backbone", cfg.optimizer.lr),
            ("classifier", cfg.optimizer.classifier_lr),
        ):
            expected = closed_form(step, base, first or base, 0.0, 3 * warmup, 6)
            assert seen[name] == pytest.approx(expected), (name, step)


@needs_the_repository
def test_biases_and_norms_can_be_kept_from_weight_decay():
    from solo.utils.misc import remove_bias_and_norm_from_weight_decay

    layer = torch.nn.Linear(2, 3)
    groups = remove_bias_and_norm_from_weight_decay(
        [{"name": "layer", "params": layer.parameters(), "lr": 0.5}]
    )
    decayed, others = groups
    assert [p.ndim for p in decayed["params"]] == [2]
    assert [p.ndim for p in others["params"]] == [1]
    assert others["weight_decay"] == 0
    assert "weight_decay" not in decayed
    assert others["lr"] == 0.5

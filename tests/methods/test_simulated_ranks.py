"""A batch in parts: the same as several ranks, with the memory of one part."""

import weakref
from pathlib import Path

import pytest
import recorded_steps
import torch
from method_parents import PARENTS, needs
from omegaconf import OmegaConf
from solo.args.pretrain import parse_cfg as parse_pretrain_cfg
from solo.methods import METHODS
from solo.methods.base import BaseMethod
from timm.models.vision_transformer import VisionTransformer
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from solo_margins.lens.capture import capture
from solo_margins.training.checked_config import checked_pretraining

PROGRAM = Path(recorded_steps.__file__)
IMAGES = 12
"""Images of a step, of all processes."""

SMALL_CROPS = "small crops"
CASES = {
    "mocov3": ("mocov3_margin", ["momentum.classifier=true"]),
    "one_direction": ("mocov3_margin", ["method_kwargs.symmetric=false"]),
    "simclr": (
        "simclr_margin",
        ["method_kwargs.proj_batch_norm=true", "method_kwargs.proj_last_batch_norm=true"],
    ),
    "small_crops": ("simclr_margin", [SMALL_CROPS]),
    "byol": ("byol_curv", []),
    "nnclr": ("nnclr_margin", ["method_kwargs.queue_size=24"]),
}
QUEUE = 24
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


@pytest.fixture
def configured(raw_config, view):
    """Make the parsed configuration of a case for some processes and parts."""

    def make(case, processes, parts):
        method, changes = CASES[case]
        changes = list(changes)
        views = [view()]
        if SMALL_CROPS in changes:
            changes.remove(SMALL_CROPS)
            views.append(view(crop_size=8, num_crops=1))
        cfg = raw_config(
            method,
            "backbone={name: narrow_resnet10, kwargs: {width: 8}}",
            f"devices={list(range(processes))}",
            f"optimizer.batch_size={IMAGES // processes}",
            "optimizer.lr=10",
            "scheduler.name=none",
            f"method_kwargs.simulated_ranks={parts}",
            *changes,
        )
        cfg.augmentations = views
        return parse_pretrain_cfg(cfg)

    return make


@pytest.fixture
def by_processes(configured, python, tmp_path):
    """Train cases, each with a number of processes and parts; return what the ranks recorded."""

    def train(runs):
        for case, processes, parts in runs:
            OmegaConf.save(configured(case, processes, parts), tmp_path / f"{case}.yaml")
        python("-W", "ignore", PROGRAM, tmp_path)
        results = {}
        for case, processes, _ in runs:
            paths = [tmp_path / f"{case}-{rank}.pt" for rank in range(processes)]
            results[case] = [torch.load(path, weights_only=True) for path in paths]
        return results

    return train


def in_order(name, value):
    """Return a tensor, one of a queue sorted: what it holds counts, not in which order."""
    value = value.double()
    if name in ("queue", "queue_y"):
        return value.sort(dim=value.shape.index(QUEUE)).values
    return value


def differing(some, others):
    """Return the names of tensors that differ."""
    assert some.keys() == others.keys()
    return [
        name
        for name in some
        if not torch.allclose(
            in_order(name, some[name]), in_order(name, others[name]), rtol=0, atol=1e-9
        )
    ]


def assert_same(case, recorder, ranks):
    """Assert that a run in parts did what several ranks did together."""
    assert len(recorder.losses) == 3
    losses = torch.tensor([rank["losses"] for rank in ranks], dtype=torch.float64).mean(dim=0)
    assert recorder.losses == pytest.approx(losses.tolist(), abs=1e-9), case
    for own, theirs in zip(recorder.gradients, ranks[0]["gradients"], strict=True):
        assert differing(own, theirs) == [], case
    assert differing(recorder.state, ranks[0]["state"]) == [], case


def test_two_parts_are_two_processes(configured, by_processes):
    cases = [case for case, (method, _) in CASES.items() if method in PARENTS]
    ranks = by_processes([(case, 2, 1) for case in cases])
    for case in cases:
        in_parts = recorded_steps.recorded(configured(case, 1, 2))
        assert_same(case, in_parts, ranks[case])
        as_a_whole = recorded_steps.recorded(configured(case, 1, 1))
        assert differing(as_a_whole.state, in_parts.state) != [], case


def test_four_parts_are_four_processes_and_two_processes_of_two_parts(configured, by_processes):
    in_parts = recorded_steps.recorded(configured("mocov3", 1, 4))
    assert_same("four processes", in_parts, by_processes([("mocov3", 4, 1)])["mocov3"])
    assert_same("two of two", in_parts, by_processes([("mocov3", 2, 2)])["mocov3"])


def parts_without_checkpoints(method):
    """Return a class that encodes in parts by a plain loop, which keeps all activations."""

    class Plain(METHODS[method]):
        def in_parts(self, encode, X):
            norms = [layer for layer in self.modules() if isinstance(layer, NORMS)]
            before = [layer.num_batches_tracked.clone() for layer in norms]
            outputs = [encode(X[:: self.simulated_ranks])]
            for layer in norms:
                layer.momentum = 0.0  # statistics stay as they are
            outputs += [
                encode(X[rank :: self.simulated_ranks]) for rank in range(1, self.simulated_ranks)
            ]
            for layer, count in zip(norms, before, strict=True):
                layer.momentum = 0.1
                is_used = bool(layer.num_batches_tracked > count)
                layer.num_batches_tracked.copy_(count + int(is_used))
            joined = {}
            for name in outputs[0]:
                rows = []
                for row in range(len(outputs[0][name])):
                    rows += [output[name][row] for output in outputs]
                joined[name] = torch.stack(rows)
            return joined

    return Plain


@pytest.fixture
def in_two_ways(config, train, largest_difference):
    """Train a method in parts, with checkpoints and without; return by how much they differ."""

    def run(method, *changes, dtype=torch.float64, **settings):
        changes = (*needs(method), "method_kwargs.simulated_ranks=2", *changes)
        models = []
        for way in (METHODS[method], parts_without_checkpoints(method)):
            torch.manual_seed(3)
            torch.set_default_dtype(dtype)
            model = way(config(method, *changes))
            torch.set_default_dtype(torch.float32)
            models.append(train(method, *changes, model=model, **settings)[0])
        return largest_difference(*models)

    return run


def test_recomputing_changes_neither_weights_nor_statistics(in_two_ways, any_method):
    assert in_two_ways(any_method) < 1e-12


@pytest.mark.parametrize("accumulated", [1, 3])
def test_it_combines_with_half_precision_and_accumulation(in_two_ways, accumulated):
    settings = {"precision": "bf16-mixed", "accumulate_grad_batches": accumulated}
    assert in_two_ways("mocov3_margin", dtype=torch.float32, **settings) < 1e-6


def test_running_statistics_count_each_view_once(train):
    model, _ = train("byol_curv", "method_kwargs.simulated_ranks=4")
    counted = {}
    for name, buffer in model.named_buffers():
        if name.endswith("num_batches_tracked"):
            counted[name] = buffer.item()
    assert len(counted) == 5
    assert set(counted.values()) == {6}  # two views in three steps
    assert not model.is_recomputing


class TinyViT(VisionTransformer):
    """A transformer that drops whole paths, tokens' features and attention."""

    def __init__(self, method=None, **kwargs):
        super().__init__(
            img_size=16,
            patch_size=8,
            embed_dim=12,
            depth=3,
            num_heads=2,
            num_classes=0,
            drop_path_rate=0.5,
            proj_drop_rate=0.3,
            attn_drop_rate=0.2,
        )


@pytest.mark.parametrize("method", ["simclr_margin", "mocov3_margin"])
def test_what_is_dropped_is_dropped_again(in_two_ways, method, monkeypatch):
    monkeypatch.setitem(BaseMethod._BACKBONES, "tiny_dropping", TinyViT)
    assert in_two_ways(method, "backbone.name=tiny_dropping") < 1e-12


# the teacher


def test_the_teacher_normalises_by_parts_and_has_no_graph(config, device):
    images = torch.randn(8, 3, 16, 16, device=device)
    settings = config("mocov3_margin", "method_kwargs.simulated_ranks=2")
    model = METHODS["mocov3_margin"](settings).to(device)
    twin = METHODS["mocov3_margin"](config("mocov3_margin")).to(device)
    twin.load_state_dict(model.state_dict())
    keys = model.momentum_forward(images)["k"]
    assert not keys.requires_grad
    assert torch.allclose(keys[1::2], twin.momentum_forward(images[1::2])["k"], atol=1e-6)
    # Those of the first part are kept, and it comes last here.
    twin.load_state_dict(METHODS["mocov3_margin"](twin.cfg).state_dict() | dict(parameters(model)))
    assert torch.allclose(keys[0::2], twin.momentum_forward(images[0::2])["k"], atol=1e-6)
    statistics = dict(model.momentum_backbone.named_buffers())
    assert differing(statistics, dict(twin.momentum_backbone.named_buffers())) == []


def parameters(model):
    return {name: value.detach() for name, value in model.named_parameters()}


def test_validation_is_not_in_parts(config):
    model = METHODS["mocov3_margin"](config("mocov3_margin", "method_kwargs.simulated_ranks=4"))
    model.eval()
    assert len(model(torch.randn(7, 3, 16, 16))["z"]) == 7
    assert len(model.momentum_forward(torch.randn(7, 3, 16, 16))["k"]) == 7


# memory


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all tensors that exist at a time, among those made in the block."""

    def __init__(self):
        super().__init__()
        self.live = 0
        self.peak = 0
        self.storages = weakref.WeakSet()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, torch.Tensor):
                self.count(value.untyped_storage())
        return result

    def count(self, storage):
        if storage in self.storages:
            return
        self.storages.add(storage)
        self.live += storage.nbytes()
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self.forget, storage.nbytes())

    def forget(self, size):
        self.live -= size


@pytest.fixture
def one_step(config, device):
    """Return a function that takes one step of SimCLR in parts, but for the optimiser's."""

    def make(parts):
        cfg = config(
            "simclr_margin",
            "backbone={name: narrow_resnet10, kwargs: {width: 8}}",
            "optimizer.batch_size=64",
            f"method_kwargs.simulated_ranks={parts}",
        )
        model = METHODS["simclr_margin"](cfg).to(device)
        model.log_dict = lambda *args, **kwargs: None
        numbers = torch.arange(64, device=device)
        views = [torch.randn(64, 3, 32, 32, device=device) for _ in range(2)]
        batch = [numbers, views, numbers % 3]
        return model, lambda: model.training_step(batch, 0)

    return make


def saved_by(forward):
    """Return the bytes that a graph keeps for the backward pass."""
    sizes = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        forward().backward()
    return sum(sizes.values())


def test_the_graph_keeps_images_and_outputs_alone(one_step):
    _, whole = one_step(1)
    _, in_parts = one_step(8)
    assert saved_by(in_parts) < saved_by(whole) / 8


def test_activations_of_one_part_are_in_memory(one_step):
    peaks = {}
    for parts in (1, 8):
        _, forward = one_step(parts)
        forward().backward()  # makes the gradients, which stay
        with LiveBytes() as counted:
            forward().backward()
        peaks[parts] = counted.peak
    # One view in one of eight parts, of two views: a sixteenth, and what does not depend on it.
    assert peaks[8] < peaks[1] / 6


def test_the_price_is_one_more_forward_pass(one_step):
    flops = {}
    for parts in (1, 8):
        _, forward = one_step(parts)
        with FlopCounterMode(display=False) as counted:
            loss = forward()
        flops["forward", parts] = counted.get_total_flops()
        with counted:
            loss.backward()
        flops["backward", parts] = counted.get_total_flops()
    assert flops["forward", 8] == pytest.approx(flops["forward", 1], rel=0.01)
    added = flops["backward", 8] - flops["backward", 1]
    assert 0.9 < added / flops["forward", 1] < 1.01


# settings


def test_our_configurations_have_it(composed, any_method):
    assert composed(f"{any_method}.yaml").method_kwargs.simulated_ranks == 1
    cfg = composed(f"{any_method}.yaml", "method_kwargs.simulated_ranks=2")
    assert checked_pretraining(cfg).method_kwargs.simulated_ranks == 2


@pytest.mark.parametrize("value", ["0", "-2", "1.5", "true", "many"])
def test_other_than_whole_numbers_are_refused(config, value):
    cfg = config("byol_curv", f"method_kwargs.simulated_ranks={value}")
    with pytest.raises(ValueError, match=r"method_kwargs\.simulated_ranks"):
        METHODS["byol_curv"](cfg)


def test_a_batch_size_that_it_does_not_divide_is_refused(config):
    cfg = config("byol_curv", "method_kwargs.simulated_ranks=3")
    with pytest.raises(ValueError, match=r"optimizer\.batch_size .*simulated_ranks=3.* 8"):
        METHODS["byol_curv"](cfg)


def test_a_batch_that_it_does_not_divide_is_refused(config):
    model = METHODS["byol_curv"](config("byol_curv", "method_kwargs.simulated_ranks=4"))
    with pytest.raises(ValueError, match=r"simulated_ranks=4 .* 7 images"):
        model(torch.randn(7, 3, 16, 16))


# observers


def test_the_lens_sees_every_image_once(one_step):
    counts = {}
    for parts in (1, 4):
        model, forward = one_step(parts)
        with capture(model) as captured:
            forward().backward()
        counts[parts] = [
            sum(len(features) for features in captured.features),
            sum(len(projections) for projections in captured.projections),
        ]
    assert counts[4] == counts[1] == [128, 128]


def test_two_backward_passes_recompute_twice(one_step):
    model, forward = one_step(4)
    loss = forward()
    loss.backward(retain_graph=True)
    trained = [parameter for parameter in model.parameters() if parameter.grad is not None]
    once = [parameter.grad.clone() for parameter in trained]
    buffers = [buffer.clone() for buffer in model.buffers()]
    loss.backward()
    for first, parameter in zip(once, trained, strict=True):
        assert torch.allclose(parameter.grad, 2 * first, rtol=1e-4, atol=1e-6)
    for before, buffer in zip(buffers, model.buffers(), strict=True):
        assert torch.equal(before, buffer)


def test_layers_keep_their_own_buffers(one_step):
    model, forward = one_step(4)
    before = {name: id(buffer) for name, buffer in model.named_buffers()}
    forward().backward()
    assert {name: id(buffer) for name, buffer in model.named_buffers()} == before
    assert any(isinstance(layer, nn.BatchNorm2d) for layer in model.modules())

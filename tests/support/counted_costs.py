"""What a process counts while it computes a loss, for the formulas of ``scripts/costs.py``."""

import torch
import torch.distributed as dist
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from solo_margins.losses import engine, plain
from solo_margins.losses.margins import ContrastSpec, Margins

MARGINS = Margins(0.2, 0.1, 2.0, 1.5, 0.5)


def _bytes(tensors):
    if isinstance(tensors, torch.Tensor):
        # Numbers of rows and ids are integers; only embeddings and gradients are of interest.
        return tensors.nbytes if tensors.is_floating_point() else 0
    return sum(_bytes(tensor) for tensor in tensors)


class Traffic(TorchDispatchMode):
    """Add up the bytes of floating-point numbers that collectives bring from other processes."""

    def __init__(self):
        super().__init__()
        self.received = 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        if operator.namespace in ("c10d", "_c10d_functional"):
            self.received += self._from_others(operator.__name__, args, result)
        return result

    def _from_others(self, name, args, result):
        if name.startswith("allgather_"):
            outputs, inputs = args[:2]
            return _bytes(outputs) - _bytes(inputs)
        if name.startswith("all_gather_into_tensor"):
            return _bytes(result) - _bytes(args[0])
        if name.startswith("reduce_scatter_tensor"):
            return _bytes(args[0]) - _bytes(result)
        waits_or_wraps = ("wait_tensor", "_wrap_tensor_autograd", "barrier")
        assert name.startswith(waits_or_wraps), f"uncounted collective {name}"
        return 0


def saved_by(function):
    """Return what a function returns, and the bytes of floating-point numbers that it saves."""
    saved, kept = {}, []

    def pack(tensor):
        if tensor.is_floating_point():
            saved[StorageWeakRef(tensor.untyped_storage())] = tensor.untyped_storage().nbytes()
            kept.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function()
    return result, sum(saved.values())


def costs_of_one_rank(rank, batch, width):
    """Return the counted costs of each loss: bytes received forward and backward, flops, kept."""
    processes = dist.get_world_size() if dist.is_initialized() else 1
    mine = torch.arange(batch // processes) + rank * (batch // processes)
    first, second = (torch.randn(len(mine), width, requires_grad=True) for _ in range(2))
    views = torch.cat([first, second])
    spec = ContrastSpec(0.2, MARGINS)

    def simclr(form):
        return form.same_id(views, mine.repeat(2), spec)

    def mocov3(form):
        return form.query_key(first, second.detach(), spec)

    return {"simclr": _counted(simclr), "mocov3": _counted(mocov3)}


def _counted(loss):
    with Traffic() as forward:
        value, kept = saved_by(lambda: loss(engine))
    with Traffic() as backward:
        value.backward(retain_graph=True)
    with FlopCounterMode(display=False) as counter:
        loss(plain).backward(retain_graph=True)
    return forward.received, backward.received, counter.get_total_flops(), kept

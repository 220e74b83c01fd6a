"""Encodes a batch in parts, as several ranks would, with the activations of one part in memory.

Part r of n holds the images r, r + n, r + 2n, … of the batch. These are the images that rank r of n
processes reads, in our programs and from PyTorch's ``DistributedSampler``, so that one process with
n parts and n processes with one part each compute the same. Every part has batch statistics of its
own. The outputs of all parts are put together in the order of the images, so that a loss sees the
whole batch.

Each part is under activation checkpointing: the graph keeps its images and its outputs, and the
backward pass computes its activations once more, one part after the other. This is what GradCache
(https://arxiv.org/abs/2101.06983) does, by means of autograd alone.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class UnkeptStatistics(AbstractContextManager[None]):
    """Lets a network update copies of its running statistics, which are gone after the block.

    It can be entered again, as a second backward pass through a retained graph does.
    """

    def __init__(self, network: nn.Module) -> None:
        self.network: Any = network
        self._own: list[tuple[nn.Module, str, Tensor]] = []

    def __enter__(self) -> None:
        for layer in self.network.modules():
            # Batch normalisation of any kind.
            if getattr(layer, "track_running_stats", False):
                for name, buffer in list(layer.named_buffers(recurse=False)):
                    self._own.append((layer, name, buffer))
                    setattr(layer, name, buffer.clone())

    def __exit__(self, *error: object) -> None:
        # Also when checkpointing ends a recomputation early, which it does by an exception.
        for layer, name, buffer in self._own:
            setattr(layer, name, buffer)
        self._own.clear()


class Recomputation(UnkeptStatistics):
    """The second forward pass of a part: statistics are updated by the first one alone.

    Meanwhile ``network.is_recomputing`` is true, for those who observe its outputs.
    """

    def __enter__(self) -> None:
        super().__enter__()
        self.network.is_recomputing = True

    def __exit__(self, *error: object) -> None:
        self.network.is_recomputing = False
        super().__exit__(*error)


def require_equal_parts(images: int, parts: int) -> None:
    """Raise ``ValueError`` if the parts of a batch would differ in size."""
    if images % parts != 0:
        raise ValueError(
            f"method_kwargs.simulated_ranks={parts} needs batches that it divides, got one of "
            f"{images} images"
        )


def encode_in_parts(
    encode: Callable[[Tensor], dict[str, Any]], images: Tensor, parts: int, network: nn.Module
) -> dict[str, Any]:
    """Return what ``encode`` returns for the images, computed part by part.

    Args:
        encode: from the images of a part to tensors with a row for each of them.
        images: (N, …); N is a multiple of ``parts``.
        parts: how many there are.
        network: whose layers ``encode`` uses.
    """

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), Recomputation(network)

    outputs = []
    for rank in range(parts):
        # DistributedDataParallel gives the buffers of rank 0 to all ranks before each step, and a
        # checkpoint holds those of rank 0: running statistics of the other ranks are never kept.
        statistics = nullcontext() if rank == 0 else UnkeptStatistics(network)
        with statistics:
            outputs.append(
                checkpoint(
                    encode,
                    images[rank::parts],
                    use_reentrant=False,
                    # Drop path and dropout leave out the same again.
                    preserve_rng_state=True,
                    context_fn=contexts,
                )
            )
    return {name: in_order([output[name] for output in outputs]) for name in outputs[0]}


def in_order(parts: list[Tensor]) -> Tensor:
    """Return the rows of all parts in the order of the images.

    Examples:
        >>> in_order([torch.tensor([0, 2, 4]), torch.tensor([1, 3, 5])])
        tensor([0, 1, 2, 3, 4, 5])
    """
    return torch.stack(parts, dim=1).flatten(0, 1)

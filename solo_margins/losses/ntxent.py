"""The losses as modules with the call convention of other libraries."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from solo_margins.losses import forms
from solo_margins.losses.checks import require_flag, require_same_shape, require_width
from solo_margins.losses.gather import batch_sizes, gather
from solo_margins.losses.margins import ContrastSpec, Margins


class MarginNTXentLoss(nn.Module):
    """NT-Xent with margins for two batches of views, as other libraries call it.

    Its arguments are those of lightly's ``NTXentLoss``, which it equals at default margins. Without
    a memory bank all views of a batch are compared: SimCLR. With one, the first batch holds
    queries, the second their keys, which get no gradient, and the bank's earlier keys are the
    negatives: MoCo. The bank stores keys whenever the queries require a gradient, and is part of
    the module's state; keep a module with a bank out of activation checkpointing, which would store
    the keys again.

    Args:
        temperature: τ > 0, a number or a tensor of one number without gradient.
        memory_bank_size: (K, D) for K keys of D entries; 0 for no memory bank. In this place the
            margins are taken, too: ``MarginNTXentLoss(temperature, margins)``.
        gather_distributed: in several processes, compare with the views of all of them, which are
            gathered with gradient, and store the keys of all; by default each has its own.
        margins: the margins; see `Margins`.

    Raises:
        ValueError: the temperature is not a number > 0, the memory bank's size is neither 0 nor two
            whole numbers > 0, or the shapes of the views differ.

    Examples:
        >>> loss = MarginNTXentLoss(temperature=0.5, margins=Margins(subtractive=0.1))
        >>> z0, z1 = torch.eye(4), torch.eye(4) + 0.1
        >>> f"{loss(z0, z1):.4f}"
        '0.8034'
    """

    bank: Tensor | None
    position: Tensor

    def __init__(
        self,
        temperature: float | Tensor = 0.5,
        memory_bank_size: int | Sequence[int] | Margins = 0,
        gather_distributed: bool = False,
        margins: Margins = Margins(),
    ) -> None:
        super().__init__()
        if isinstance(memory_bank_size, Margins):
            margins, memory_bank_size = memory_bank_size, 0
        spec = ContrastSpec(temperature, margins)
        self.temperature, self.margins = spec.temperature, spec.margins
        self.gather_distributed = require_flag("gather_distributed", gather_distributed)
        self.register_buffer("bank", None)
        if shape := _bank_shape(memory_bank_size):
            self.bank = nn.functional.normalize(torch.randn(shape), dim=1)
            self.register_buffer("position", torch.zeros((), dtype=torch.long))

    def forward(self, z0: Tensor, z1: Tensor) -> Tensor:
        """Return the loss of two (N, D) batches; row i of one and of the other are positives."""
        require_same_shape("z0", z0, "z1", z1)
        spec = ContrastSpec(self.temperature, self.margins, gathers=self.gather_distributed)
        if self.bank is not None:
            require_width("the memory bank", self.bank, "KD", "z0", z0)
            loss = forms.queue(z0, z1, self.bank.t(), spec)
            if z0.requires_grad:
                sizes = batch_sizes(z1, spec.gathers)
                self._remember(gather(z1.detach(), sizes))
            return loss
        return forms.views(torch.cat([z0, z1]), 2, spec)

    @torch.no_grad()
    def _remember(self, keys: Tensor) -> None:
        """Replace the oldest keys of the bank."""
        assert self.bank is not None
        # Not in place: the backward pass, or a state that was taken, may still need the old bank.
        bank = self.bank.clone()
        keys = nn.functional.normalize(keys.to(bank.dtype), dim=1)[-len(bank) :]
        slots = (self.position + torch.arange(len(keys), device=bank.device)) % len(bank)
        bank[slots] = keys
        self.bank = bank
        self.position = (self.position + len(keys)) % len(bank)

    def extra_repr(self) -> str:
        """Return the arguments, shown when the module is printed."""
        size = 0 if self.bank is None else tuple(self.bank.shape)
        return f"{self.temperature}, {size}, {self.gather_distributed}, {self.margins}"


def _bank_shape(size: int | Sequence[int]) -> tuple[int, ...]:
    """Return the number of keys and their width, nothing where there is no bank."""
    shape = tuple(size) if isinstance(size, Sequence) else (size,)
    # lightly takes 0, (0,) and (0, width) for no memory bank.
    if shape[:1] == (0,) and len(shape) <= 2:
        return ()
    if len(shape) != 2 or not all(isinstance(length, int) and length > 0 for length in shape):
        allowed = "0 or (keys, width), such as (4096, 128)"
        raise ValueError(f"memory_bank_size must be {allowed}, got {size!r}")
    return shape

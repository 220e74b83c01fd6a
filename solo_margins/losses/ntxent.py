"""The losses as modules with the call convention of other libraries."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from solo_margins.losses.checks import require_same_shape
from solo_margins.losses.gather import batch_sizes, gather, own_rows
from solo_margins.losses.margins import AlignedTemperature, ContrastSpec, Margins
from solo_margins.losses.mocov2plus import mocov2plus_margin_loss_func
from solo_margins.losses.simclr import simclr_margin_loss_func


class MarginNTXentLoss(nn.Module):
    """NT-Xent with margins for two batches of views, as other libraries call it.

    With default margins it equals lightly's ``NTXentLoss``. Without a memory bank the views of all
    processes are gathered with gradient: SimCLR. With one, the first batch holds queries, the
    second their keys, which get no gradient, and the bank's earlier keys are the negatives: MoCo.
    The bank stores the keys of all processes whenever the queries require a gradient, and is part
    of the module's state.

    Args:
        temperature: τ > 0, or an :class:`AlignedTemperature`.
        margins: the margins; see :class:`Margins`.
        memory_bank_size: (K, D) for K keys of D entries; 0 for no memory bank.

    Raises:
        ValueError: the temperature is not a number > 0, the memory bank's size is neither 0 nor two
            whole numbers > 0, or the shapes of the views differ.

    Example:
        >>> loss = MarginNTXentLoss(temperature=0.5, margins=Margins(subtractive=0.1))
        >>> z0, z1 = torch.eye(4), torch.eye(4) + 0.1
        >>> f"{loss(z0, z1):.4f}"
        '0.8034'
    """

    bank: Tensor | None
    position: Tensor

    def __init__(
        self,
        temperature: float | AlignedTemperature = 0.5,
        margins: Margins = Margins(),
        memory_bank_size: int | Sequence[int] = 0,
    ) -> None:
        super().__init__()
        spec = ContrastSpec(temperature, margins)
        self.temperature, self.margins = spec.temperature, spec.margins
        self.register_buffer("bank", None)
        if memory_bank_size != 0:
            keys = torch.randn(_bank_shape(memory_bank_size))
            self.bank = nn.functional.normalize(keys, dim=1)
            self.register_buffer("position", torch.zeros((), dtype=torch.long))

    def forward(self, z0: Tensor, z1: Tensor) -> Tensor:
        """Return the loss of two (N, D) batches; row i of one and of the other are positives."""
        require_same_shape("z0", z0, "z1", z1)
        if self.bank is not None:
            loss = mocov2plus_margin_loss_func(
                z0, z1, self.bank.t(), self.temperature, self.margins
            )
            if z0.requires_grad:
                self._remember(gather(z1.detach(), batch_sizes(z1)))
            return loss
        own = own_rows(batch_sizes(z0))
        ids = torch.arange(own.start, own.stop, device=z0.device)
        return simclr_margin_loss_func(
            torch.cat([z0, z1]), ids.repeat(2), self.temperature, self.margins
        )

    @torch.no_grad()
    def _remember(self, keys: Tensor) -> None:
        """Replace the oldest keys of the bank."""
        assert self.bank is not None
        # Not in place: the backward pass of the loss may still need the old bank.
        bank = self.bank.clone()
        keys = nn.functional.normalize(keys.to(bank.dtype), dim=1)[-len(bank) :]
        slots = (self.position + torch.arange(len(keys), device=bank.device)) % len(bank)
        bank[slots] = keys
        self.bank = bank
        self.position = (self.position + len(keys)) % len(bank)

    def extra_repr(self) -> str:
        """Return the settings, shown when the module is printed."""
        size = 0 if self.bank is None else tuple(self.bank.shape)
        return f"temperature={self.temperature}, margins={self.margins}, memory_bank_size={size}"


def _bank_shape(size: int | Sequence[int]) -> tuple[int, ...]:
    """Return the number of keys and their width."""
    shape = tuple(size) if isinstance(size, Sequence) else (size,)
    if len(shape) != 2 or not all(isinstance(length, int) and length > 0 for length in shape):
        raise ValueError(
            f"memory_bank_size must be 0 or (keys, width), such as (4096, 128), got {size!r}"
        )
    return shape

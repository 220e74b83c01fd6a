"""The losses as modules with the call convention of other libraries."""

import torch
from torch import Tensor, nn

from solo_margins.losses._checks import require_same_shape, require_temperature
from solo_margins.losses._gather import batch_sizes, first_row
from solo_margins.losses.margins import Margins, require_margins
from solo_margins.losses.simclr import simclr_margin_loss_func


class MarginNTXentLoss(nn.Module):
    """NT-Xent with margins for two batches of views, as other libraries call it.

    With default margins it equals lightly's ``NTXentLoss`` without memory bank. In several
    processes the views of all of them are gathered with gradient.

    Args:
        temperature: τ > 0.
        margins: the margins; see :class:`Margins`.

    Raises:
        ValueError: the temperature is not a number > 0, or the shapes of the views differ.

    Example:
        >>> loss = MarginNTXentLoss(temperature=0.5, margins=Margins(subtractive=0.1))
        >>> z0, z1 = torch.eye(4), torch.eye(4) + 0.1
        >>> f"{loss(z0, z1):.4f}"
        '0.8034'
    """

    def __init__(self, temperature: float = 0.5, margins: Margins = Margins()) -> None:
        super().__init__()
        self.temperature = require_temperature(temperature)
        require_margins(margins)
        self.margins = margins

    def forward(self, z0: Tensor, z1: Tensor) -> Tensor:
        """Return the loss of two (N, D) batches; row i of one and of the other are positives."""
        require_same_shape("z0", z0, "z1", z1)
        start = first_row(batch_sizes(z0))
        ids = torch.arange(start, start + z0.shape[0], device=z0.device)
        return simclr_margin_loss_func(
            torch.cat([z0, z1]), ids.repeat(2), self.temperature, self.margins
        )

    def extra_repr(self) -> str:
        """Return the settings, shown when the module is printed."""
        return f"temperature={self.temperature}, margins={self.margins}"

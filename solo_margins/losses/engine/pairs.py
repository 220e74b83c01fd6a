"""The engine's loss without negatives: similarities of pairs, with the gradient at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from solo_margins.losses import plain
from solo_margins.losses.capture import report_pairs
from solo_margins.losses.engine import geometry
from solo_margins.losses.margins import Margins


def positives_only(p: Tensor, z: Tensor, margins: Margins) -> Tensor:
    """Return minus the mean similarity with margins of pairs (p_i, z_i), with gradient for p."""
    rows, targets = geometry.unit_vectors(p, z.detach())
    report_pairs(rows, targets, margins)
    pairs = _Pairs(margins)
    return geometry.EngineLoss.apply(pairs.at_once, pairs.by_autograd, rows, targets)


@dataclass(frozen=True)
class _Pairs:
    """Minus the mean similarity of pairs of unit vectors, computed in two ways."""

    margins: Margins

    def by_autograd(self, rows: Tensor, targets: Tensor) -> Tensor:
        """Return the loss in its plain form."""
        return plain.pair_losses(rows, targets, self.margins).mean()

    def at_once(
        self, rows: Tensor, targets: Tensor, needed: Sequence[bool]
    ) -> tuple[Tensor, list[Tensor | None]]:
        """Return the loss and its gradient by the rows; targets get none."""
        angles = geometry.angles_between(rows, targets, self.margins)
        loss = -self.margins.similarity(angles.cosine, angles.sine).mean()
        if not needed[0]:
            return loss, [None, None]
        scale = min(self.margins.common_scale, geometry.largest_factor(rows))
        by_similarity = torch.full_like(angles.cosine, -scale / len(rows))
        factor = geometry.positive_grad(
            angles.cosine, angles.sine, self.margins, by_similarity, q=None
        )
        return loss, [angles.direction * factor.unsqueeze(1), None]

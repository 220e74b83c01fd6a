"""BYOL's loss with margins and gradient scalings.

References:
    - [0] Bootstrap Your Own Latent (BYOL), 2020, https://arxiv.org/abs/2006.07733
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from torch import Tensor

from solo_margins.losses.checks import require_same_shape
from solo_margins.losses.forms import positives_only
from solo_margins.losses.margins import Margins, require_margins_of_pairs


def byol_curv_loss_func(p: Tensor, z: Tensor, margins: Margins = Margins()) -> Tensor:
    r"""BYOL's loss with margins; all pairs are positives.

    $$
    L = \frac{1}{N} \sum_i \left( 2 - 2 (\cos(\theta_i + m_1) - m_2) \right)
    $$

    Scale and curvature multiply the gradient of pair i by $s \cdot \mathrm{curve}(\theta_i)$
    and leave the value alone. With default margins value and gradient are those of solo-learn's
    ``byol_loss_func``.

    Args:
        p: (N, D) predictions of the student. Any floating dtype.
        z: (N, D) projections of the teacher; they get no gradient.
        margins: the margins; see `Margins`. Attenuation needs negatives and is refused.

    Returns:
        The loss, a scalar; float64 for float64 inputs, otherwise float32.

    Raises:
        ValueError: an argument leaves its range, the shapes differ, or attenuation is not 0.

    Examples:
        >>> import torch
        >>> p = torch.eye(4)
        >>> f"{byol_curv_loss_func(p, p.roll(1, dims=1) + p):.4f}"
        '0.5858'
    """
    require_margins_of_pairs(margins)
    require_same_shape("p", p, "z", z)
    return 2.0 + 2.0 * positives_only(p, z, margins)

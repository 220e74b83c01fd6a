"""SimSiam's loss with margins and gradient scalings.

References:
    - [0] Exploring Simple Siamese Representation Learning (SimSiam), 2020,
      https://arxiv.org/abs/2011.10566
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from torch import Tensor

from solo_margins.losses.checks import require_same_shape
from solo_margins.losses.forms import positives_only
from solo_margins.losses.margins import Margins, require_margins_of_pairs


def simsiam_curv_loss_func(p: Tensor, z: Tensor, margins: Margins = Margins()) -> Tensor:
    r"""SimSiam's loss with margins; all pairs are positives.

    $$
    L = -\frac{1}{N} \sum_i \left( \cos(\theta_i + m_1) - m_2 \right)
    $$

    This is (b - 2)/2 with b the loss of `byol_curv_loss_func`, gradients alike. With default
    margins value and gradient are those of solo-learn's ``simsiam_loss_func``.

    Args:
        p: (N, D) predictions. Any floating dtype.
        z: (N, D) projections of the other view; they get no gradient.
        margins: the margins; see `Margins`. Attenuation needs negatives and is refused.

    Returns:
        The loss, a scalar; float64 for float64 inputs, otherwise float32.

    Raises:
        ValueError: an argument leaves its range, the shapes differ, or attenuation is not 0.

    Examples:
        >>> import torch
        >>> p = torch.eye(4)
        >>> f"{simsiam_curv_loss_func(p, p.roll(1, dims=1) + p):.4f}"
        '-0.7071'
    """
    require_margins_of_pairs(margins)
    require_same_shape("p", p, "z", z)
    return positives_only(p, z, margins)

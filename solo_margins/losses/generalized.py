"""Generalised InfoNCE: one formula from positives only (BYOL) to all negatives (MoCo, SimCLR).

References:
    - [0] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from torch import Tensor

from solo_margins.losses.checks import require_same_shape
from solo_margins.losses.forms import query_key
from solo_margins.losses.margins import ContrastSpec, Margins


def generalized_info_nce_loss_func(
    query: Tensor,
    key: Tensor,
    temperature: float | Tensor = 0.2,
    negatives_weight: float = 1.0,
    margins: Margins = Margins(),
) -> Tensor:
    r"""The paper's generalised InfoNCE with margins (Eq. 6 and 9 of [0]).

    $$
    L = -\frac{1}{N} \sum_i \left( z'_{ii} - \beta \log \sum_k e^{z'_{ik}} \right)
    $$

    β = 1 is InfoNCE; β = 0 leaves positives only, which is BYOL's loss up to factor and offset.

    Args:
        query: (N, D) queries; row i belongs to key i. Any floating dtype.
        key: (N, D) keys. In several processes they are gathered without gradient.
        temperature: τ > 0, a number or a tensor of one number without gradient.
        negatives_weight: β >= 0. Where β < 1 the attenuated gradient of a positive diverges as
            q→1 at α = 1; it is cut off at 1/eps there.
        margins: the margins; see `Margins`.

    Returns:
        The loss, a scalar; float64 for float64 inputs, otherwise float32.

    Raises:
        ValueError: an argument leaves its range or the shapes differ.

    Examples:
        >>> import torch
        >>> query = torch.eye(4)
        >>> key = query.roll(1, dims=1) + query
        >>> f"{generalized_info_nce_loss_func(query, key):.4f}"
        '0.7219'
        >>> f"{generalized_info_nce_loss_func(query, key, negatives_weight=0.0):.4f}"
        '-3.5355'
    """
    spec = ContrastSpec(temperature, margins, negatives_weight)
    require_same_shape("query", query, "key", key)
    return query_key(query, key, spec)

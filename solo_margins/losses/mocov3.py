"""MoCo v3's contrastive loss with margins.

References:
    - [0] An Empirical Study of Training Self-Supervised Vision Transformers (MoCo v3), 2021,
      https://arxiv.org/abs/2104.02057
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from collections.abc import Callable

from torch import Tensor

from solo_margins.losses._checks import require_same_shape, require_temperature, require_tile_size
from solo_margins.losses._contrast import Contrast, contrast
from solo_margins.losses._gather import (
    batch_sizes,
    first_row,
    gather_without_gradient,
    row_weight,
)
from solo_margins.losses._objectives import InfoNCE
from solo_margins.losses._positives import diagonal_positives
from solo_margins.losses._precision import directions, full_precision
from solo_margins.losses.margins import Margins, require_margins


def query_key_loss(
    query: Tensor,
    key: Tensor,
    temperature: float,
    margins: Margins,
    *,
    negatives_weight: float = 1.0,
    scale: float = 1.0,
    tile_size: int | None = None,
    names: tuple[str, str] = ("query", "key"),
    gather: Callable[[Tensor, list[int]], Tensor] = gather_without_gradient,
) -> Tensor:
    """Return the mean over queries of ``scale`` times the generalised InfoNCE against all keys."""
    temperature = require_temperature(temperature)
    require_margins(margins)
    require_same_shape(names[0], query, names[1], key)
    require_tile_size(tile_size)
    queries, keys = directions(query, key)
    sizes = batch_sizes(keys)
    setting = Contrast(
        temperature=temperature,
        margins=margins,
        objective=InfoNCE(margins, negatives_weight),
        positives=diagonal_positives(
            queries.shape[0], first_row(sizes), sum(sizes), queries.device
        ),
        weight=scale * row_weight(sizes),
        tile_size=tile_size,
    )
    return contrast(queries, gather(keys, sizes), setting)


@full_precision
def mocov3_margin_loss_func(
    query: Tensor,
    key: Tensor,
    temperature: float = 0.2,
    margins: Margins = Margins(),
    tile_size: int | None = None,
) -> Tensor:
    r"""MoCo v3's loss of a batch of queries against the keys of all processes, with margins.

    .. math::
        L = -\frac{2\tau}{N} \sum_i \log
            \frac{e^{z'_{ii}}}{e^{z'_{ii}} + \sum_{j \neq i} e^{\cos\theta_{ij}/\tau}}, \qquad
        z'_{ii} = \frac{\cos(\theta_{ii} + m_1) - m_2}{\tau}

    The factor 2τ is that of [0]. With default margins value and gradient are those of solo-learn's
    ``mocov3_loss_func``. Scale, curvature and attenuation change gradients, never the value.

    Args:
        query: (N, D) queries of the student; row i belongs to key i. Any floating dtype.
        key: (N, D) keys of the teacher. In several processes they are gathered without gradient.
        temperature: τ > 0.
        margins: the margins; see :class:`Margins`.
        tile_size: rows of the similarity matrix held at a time; None chooses. The numbers are the
            same for every value.

    Returns:
        The loss, a scalar; float64 for float64 inputs, otherwise float32.

    Raises:
        ValueError: an argument leaves its range or the shapes differ.

    Example:
        >>> import torch
        >>> query = torch.eye(4)
        >>> key = query.roll(1, dims=1) + query
        >>> f"{mocov3_margin_loss_func(query, key):.4f}"
        '0.2887'
        >>> f"{mocov3_margin_loss_func(query, key, margins=Margins(subtractive=0.4)):.4f}"
        '0.8708'
    """
    temperature = require_temperature(temperature)
    return query_key_loss(
        query, key, temperature, margins, scale=2.0 * temperature, tile_size=tile_size
    )

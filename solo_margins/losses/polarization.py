"""The distance polarization regulariser of large-margin contrastive learning.

References:
    - [0] Large-Margin Contrastive Learning with Distance Polarization Regularizer, 2021,
      https://proceedings.mlr.press/v139/chen21n.html
"""

from torch import Tensor

from solo_margins.losses.checks import require_band, require_embeddings
from solo_margins.losses.forms import polarization


def distance_polarization_loss_func(z: Tensor, lower: float, upper: float) -> Tensor:
    r"""The penalty on pairwise distances inside a band, which drives pairs apart or together.

    $$
    R = \frac{1}{M(M-1)} \sum_{i \neq j}
    \left| \min\left( (D_{ij} - \delta^+)(D_{ij} - \delta^-), 0 \right) \right|, \qquad
    D_{ij} = \frac{1 - \cos\theta_{ij}}{2}
    $$

    over ordered pairs of all M rows in all processes. One row alone has R = 0. Reading of this
    project: [0] pairs data points; here every view is a row, so views are paired too.

    Args:
        z: (N, D) projected features. Any floating dtype. In several processes they are gathered
            with gradient.
        lower: $\delta^+$, where the band begins; 0 < lower < upper.
        upper: $\delta^-$, where the band ends; lower < upper < 1.

    Returns:
        The penalty, a scalar; float64 for float64 inputs, otherwise float32.

    Raises:
        ValueError: an argument leaves its range or has the wrong shape.

    Examples:
        >>> import torch
        >>> f"{distance_polarization_loss_func(torch.eye(4), lower=0.2, upper=0.6):.4f}"
        '0.0300'
    """
    loss, _ = distance_polarization_with_count(z, lower, upper)
    return loss


def distance_polarization_with_count(
    z: Tensor, lower: float, upper: float
) -> tuple[Tensor, Tensor]:
    r"""The penalty of `distance_polarization_loss_func` and how many pairs it acts on.

    $$
    R_0 = \left| \left\{ (i, j) : i \neq j,\ \delta^+ < D_{ij} < \delta^- \right\} \right|
    $$

    is the form of [0] that cannot be differentiated; it comes out of the same pass over the
    distances as the penalty.

    Args:
        z: (N, D) projected features; see `distance_polarization_loss_func`.
        lower: $\delta^+$, where the band begins; 0 < lower < upper.
        upper: $\delta^-$, where the band ends; lower < upper < 1.

    Returns:
        The penalty, a scalar, and the number of ordered pairs inside the band whose first row is
        one of this process, an int64 scalar without gradient. The SUM over processes, not the
        mean, is the $R_0$ of all M rows; it is at most M(M-1).

    Raises:
        ValueError: an argument leaves its range or has the wrong shape.

    Examples:
        >>> import torch
        >>> loss, count = distance_polarization_with_count(torch.eye(4), lower=0.2, upper=0.6)
        >>> f"{loss:.4f}", count.item()
        ('0.0300', 12)
    """
    require_embeddings("z", z)
    require_band(lower, upper)
    return polarization(z, lower, upper)

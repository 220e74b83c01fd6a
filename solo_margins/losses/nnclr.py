"""NNCLR's contrastive loss with margins.

References:
    - [0] With a Little Help from My Friends: Nearest-Neighbor Contrastive Learning of Visual
      Representations (NNCLR), 2021, https://arxiv.org/abs/2104.14548
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from torch import Tensor

from solo_margins.losses.checks import require_same_shape
from solo_margins.losses.forms import query_key
from solo_margins.losses.margins import ContrastSpec, Margins


def nnclr_margin_loss_func(
    nn: Tensor,
    p: Tensor,
    temperature: float | Tensor = 0.1,
    margins: Margins = Margins(),
    tau_plus: float = 0.0,
    beta: float = 0.0,
    mean: float | None = None,
    width: float = 1.0,
) -> Tensor:
    r"""NNCLR's loss of nearest neighbours against the predictions of all processes, with margins.

    $$
    L = -\frac{1}{N} \sum_i \log
    \frac{e^{z'_{ii}}}{e^{z'_{ii}} + \sum_{j \neq i} e^{\cos\theta_{ij}/\tau}}, \qquad
    z'_{ii} = \frac{\cos(\theta_{ii} + m_1) - m_2}{\tau}
    $$

    with $\theta_{ij}$ the angle between neighbour i and prediction j. With default margins
    value and gradient are those of solo-learn's ``nnclr_loss_func``. Scale, curvature and
    attenuation change gradients, never the value.

    Args:
        nn: (N, D) nearest neighbours of one view's projections; row i belongs to prediction i.
            Any floating dtype. They usually need no gradient and get one where they do.
        p: (N, D) predictions of the other view. In several processes they are gathered with
            gradient.
        temperature: τ > 0, a number or a tensor of one number without gradient.
        margins: the margins; see `Margins`.
        tau_plus: the assumed share of false negatives, in [0, 1); see
            https://arxiv.org/abs/2007.00224.
        beta: how strongly hard negatives are preferred, >= 0; see
            https://arxiv.org/abs/2010.04592.
        mean: the cosine in [-1, 1] at which negatives weigh most, None for no such weights; see
            `simclr_margin_loss_func`. It cannot be combined with beta.
        width: how wide around it negatives keep their weight, > 0.

    Returns:
        The loss, a scalar; float64 for float64 inputs, otherwise float32.

    Raises:
        ValueError: an argument leaves its range or the shapes differ.

    Examples:
        >>> import torch
        >>> nn = torch.eye(4)
        >>> p = nn.roll(1, dims=1) + nn
        >>> f"{nnclr_margin_loss_func(nn, p):.4f}"
        '0.6940'
        >>> f"{nnclr_margin_loss_func(nn, p, margins=Margins(subtractive=0.4)):.4f}"
        '4.0198'
    """
    spec = ContrastSpec(temperature, margins, tau_plus=tau_plus, beta=beta, mean=mean, width=width)
    require_same_shape("nn", nn, "p", p)
    return query_key(nn, p, spec, with_gradient=True)

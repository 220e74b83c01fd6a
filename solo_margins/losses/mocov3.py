"""MoCo v3's contrastive loss with margins.

References:
    - [0] An Empirical Study of Training Self-Supervised Vision Transformers (MoCo v3), 2021,
      https://arxiv.org/abs/2104.02057
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from torch import Tensor

from solo_margins.losses.checks import require_same_shape
from solo_margins.losses.forms import query_key
from solo_margins.losses.margins import ContrastSpec, Margins


def mocov3_margin_loss_func(
    query: Tensor,
    key: Tensor,
    temperature: float | Tensor = 0.2,
    margins: Margins = Margins(),
    tau_plus: float = 0.0,
    beta: float = 0.0,
    mean: float | None = None,
    width: float = 1.0,
) -> Tensor:
    r"""MoCo v3's loss of a batch of queries against the keys of all processes, with margins.

    $$
    L = -\frac{2\tau}{N} \sum_i \log
    \frac{e^{z'_{ii}}}{e^{z'_{ii}} + \sum_{j \neq i} e^{\cos\theta_{ij}/\tau}}, \qquad
    z'_{ii} = \frac{\cos(\theta_{ii} + m_1) - m_2}{\tau}
    $$

    The factor 2τ is that of [0]. With default margins value and gradient are those of solo-learn's
    ``mocov3_loss_func``. Scale, curvature and attenuation change gradients, never the value.

    Args:
        query: (N, D) queries of the student; row i belongs to key i. Any floating dtype.
        key: (N, D) keys of the teacher. In several processes they are gathered without gradient.
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
        >>> query = torch.eye(4)
        >>> key = query.roll(1, dims=1) + query
        >>> f"{mocov3_margin_loss_func(query, key):.4f}"
        '0.2887'
        >>> f"{mocov3_margin_loss_func(query, key, margins=Margins(subtractive=0.4)):.4f}"
        '0.8708'
    """
    spec = ContrastSpec(temperature, margins, tau_plus=tau_plus, beta=beta, mean=mean, width=width)
    require_same_shape("query", query, "key", key)
    loss = query_key(query, key, spec)
    # A tensor's dtype is not that of the loss.
    return (2.0 * spec.temperature * loss).to(loss.dtype)

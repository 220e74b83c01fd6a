"""MoCo v2+'s contrastive loss against a queue, with margins.

References:
    - [0] Improved Baselines with Momentum Contrastive Learning (MoCo v2), 2020,
      https://arxiv.org/abs/2003.04297
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from torch import Tensor

from solo_margins.losses.checks import require_same_shape, require_width
from solo_margins.losses.forms import queue as loss_with_queue
from solo_margins.losses.margins import ContrastSpec, Margins


def mocov2plus_margin_loss_func(
    query: Tensor,
    key: Tensor,
    queue: Tensor,
    temperature: float | Tensor = 0.1,
    margins: Margins = Margins(),
    tau_plus: float = 0.0,
    beta: float = 0.0,
    mean: float | None = None,
    width: float = 1.0,
) -> Tensor:
    r"""MoCo v2+'s loss of queries against their keys and a queue of negatives, with margins.

    $$
    L = -\frac{1}{N} \sum_i \log
    \frac{e^{z'_i}}{e^{z'_i} + \sum_k e^{\cos\theta_{ik}/\tau}}, \qquad
    z'_i = \frac{\cos(\theta_i + m_1) - m_2}{\tau}
    $$

    with $\theta_i$ the angle between query i and key i and $\theta_{ik}$ that between
    query i and column k of the queue. Keys of other queries are not negatives. With default margins
    value and gradient are those of solo-learn's ``mocov2plus_loss_func`` on normalised inputs;
    here they are normalised inside. Scale, curvature and attenuation change gradients, never the
    value.

    Args:
        query: (N, D) queries of the student; row i belongs to key i. Any floating dtype.
        key: (N, D) keys of the teacher; they get no gradient.
        queue: (D, K) earlier keys, one a column, the same in all processes; it gets no gradient.
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
        The loss, a scalar; float64 for float64 inputs, otherwise float32. Nothing is gathered but
        the sizes of the batches, by which the mean over processes is that over all queries.

    Raises:
        ValueError: an argument leaves its range or the shapes differ.

    Examples:
        >>> import torch
        >>> query = torch.eye(4)
        >>> key, queue = query.roll(1, dims=1) + query, torch.ones(4, 6)
        >>> f"{mocov2plus_margin_loss_func(query, key, queue):.4f}"
        '0.5632'
        >>> margins = Margins(subtractive=0.4)
        >>> f"{mocov2plus_margin_loss_func(query, key, queue, margins=margins):.4f}"
        '3.7446'
    """
    spec = ContrastSpec(temperature, margins, tau_plus=tau_plus, beta=beta, mean=mean, width=width)
    require_same_shape("query", query, "key", key)
    require_width("queue", queue, "DK", "query", query)
    return loss_with_queue(query, key, queue, spec)

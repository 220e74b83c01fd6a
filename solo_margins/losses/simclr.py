"""SimCLR's contrastive loss with margins, and its debiased and hard-negative forms.

References:
    - [0] A Simple Framework for Contrastive Learning of Visual Representations (SimCLR), 2020,
      https://arxiv.org/abs/2002.05709
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
    - [2] Debiased Contrastive Learning, 2020, https://arxiv.org/abs/2007.00224
    - [3] Contrastive Learning with Hard Negative Samples, 2021,
      https://arxiv.org/abs/2010.04592
    - [4] Understanding Contrastive Learning via Distributionally Robust Optimization (ADNCE), 2023,
      https://arxiv.org/abs/2310.11048
"""

from torch import Tensor

from solo_margins.losses.checks import require_embeddings, require_indexes
from solo_margins.losses.forms import same_id, views
from solo_margins.losses.margins import ContrastSpec, Margins


def simclr_margin_loss_func(
    z: Tensor,
    indexes: Tensor | int,
    temperature: float | Tensor = 0.1,
    margins: Margins = Margins(),
    tau_plus: float = 0.0,
    beta: float = 0.0,
    mean: float | None = None,
    width: float = 1.0,
) -> Tensor:
    r"""SimCLR's loss of all views against each other, over all processes, with margins.

    $$
    L = -\frac{1}{N} \sum_i \log
    \frac{\sum_{l \in P_i} e^{z'_{il}}}
    {\sum_{l \in P_i} e^{z'_{il}} + \sum_{j \in N_i} e^{\cos\theta_{ij}/\tau}}, \qquad
    z'_{il} = \frac{\cos(\theta_{il} + m_1) - m_2}{\tau}
    $$

    Positives $P_i$ are the other rows with the same index, negatives $N_i$ the rows
    with another one. With default margins value and gradient are those of solo-learn's
    ``simclr_loss_func``. With several positives, $q_{il}$ in the attenuation is the
    positives' summed probability. A row without a positive is left out of the mean.

    With ``mean`` the term of each negative is multiplied by its weight ([4]),

    $$
    \frac{w_{ij}}{\mathrm{mean}_{k \in N_i} w_{ik}}, \qquad
    w_{ij} = \frac{1}{\sigma\sqrt{2\pi}}
    \exp\left( -\frac{(\cos\theta_{ij} - \mu)^2}{2\sigma^2} \right)
    $$

    in value and gradient; no gradient flows through the weights, as in the authors' code.

    Args:
        z: (views·N, D) projected features of all views. Any floating dtype. In several processes
            they are gathered with gradient.
        indexes: (views·N,) integer id of the sample (or class) that each row belongs to, or the
            number of views of distinct samples, view after view. The number needs no look at ids,
            which on a GPU the loss does not take: it is faster there, and exact near 0 and π.
        temperature: τ > 0, a number or a tensor of one number without gradient.
        margins: the margins; see `Margins`.
        tau_plus: the assumed share of false negatives, in [0, 1); see
            `simclr_debiased_loss_func`.
        beta: how strongly hard negatives are preferred, >= 0; see
            `simclr_hard_negative_loss_func`.
        mean: μ in [-1, 1], the cosine at which negatives weigh most; None for no such weights. It
            cannot be combined with beta.
        width: σ > 0 of these weights.

    Returns:
        The loss, a scalar; float64 for float64 inputs, otherwise float32.

    Raises:
        ValueError: an argument leaves its range or the shapes differ.

    Examples:
        >>> import torch
        >>> z = torch.eye(6) + 0.5
        >>> indexes = torch.tensor([0, 1, 2, 0, 1, 2])
        >>> f"{simclr_margin_loss_func(z, indexes):.4f}"
        '1.6094'
        >>> f"{simclr_margin_loss_func(z, indexes, margins=Margins(subtractive=0.2)):.4f}"
        '3.4196'
        >>> z = torch.arange(18.0).reshape(6, 3).sin()
        >>> f"{simclr_margin_loss_func(z, indexes, 0.5, mean=0.7, width=0.5):.4f}"
        '5.0443'
    """
    spec = ContrastSpec(temperature, margins, tau_plus=tau_plus, beta=beta, mean=mean, width=width)
    require_embeddings("z", z)
    indexes = require_indexes(indexes, z)
    if isinstance(indexes, int):
        return views(z, indexes, spec)
    return same_id(z, indexes, spec)


def simclr_debiased_loss_func(
    z: Tensor,
    indexes: Tensor | int,
    temperature: float | Tensor = 0.5,
    tau_plus: float = 0.1,
    margins: Margins = Margins(),
) -> Tensor:
    r"""SimCLR's loss with debiased negatives ([2]) and margins.

    $$
    N_g = \max\left(
    \frac{\sum_{j \in N_i} e^{z_{ij}} - n \tau^+ \bar P}{1 - \tau^+},\, n e^{-1/\tau}
    \right), \qquad L = -\frac{1}{N} \sum_i \log \frac{P}{P + N_g}
    $$

    with $P$ the sum and $\bar P$ the mean of $e^{z'}$ over the row's positives
    and $n$ the number of its negatives. Readings of this project: numerator and correction
    both use the logits with margins, and $q = P/(P + N_g)$.

    Args:
        z: (views·N, D) projected features of all views; see `simclr_margin_loss_func`.
        indexes: (views·N,) integer id of the sample that each row belongs to, or the number of
            views; see `simclr_margin_loss_func`.
        temperature: τ > 0, a number or a tensor of one number without gradient.
        tau_plus: the assumed share of false negatives, in [0, 1).
        margins: the margins; see `Margins`.

    Returns:
        The loss, a scalar; float64 for float64 inputs, otherwise float32.

    Raises:
        ValueError: an argument leaves its range or the shapes differ.

    Examples:
        >>> import torch
        >>> z = torch.eye(6) + 0.5
        >>> indexes = torch.tensor([0, 1, 2, 0, 1, 2])
        >>> f"{simclr_debiased_loss_func(z, indexes):.4f}"
        '1.6094'
    """
    return simclr_margin_loss_func(z, indexes, temperature, margins, tau_plus)


def simclr_hard_negative_loss_func(
    z: Tensor,
    indexes: Tensor | int,
    temperature: float | Tensor = 0.5,
    tau_plus: float = 0.1,
    beta: float = 1.0,
    margins: Margins = Margins(),
) -> Tensor:
    r"""SimCLR's loss with hard negatives ([3]) and margins.

    As `simclr_debiased_loss_func`, with the sum over negatives replaced by

    $$
    \sum_{j \in N_i}
    e^{z_{ij}} \frac{e^{\beta z_{ij}}}{\mathrm{mean}_{k \in N_i} e^{\beta z_{ik}}}
    $$

    The gradient flows through the weights. β = 0 is the debiased loss.

    Args:
        z: (views·N, D) projected features of all views; see `simclr_margin_loss_func`.
        indexes: (views·N,) integer id of the sample that each row belongs to, or the number of
            views; see `simclr_margin_loss_func`.
        temperature: τ > 0, a number or a tensor of one number without gradient.
        tau_plus: the assumed share of false negatives, in [0, 1).
        beta: how strongly hard negatives are preferred, >= 0.
        margins: the margins; see `Margins`.

    Returns:
        The loss, a scalar; float64 for float64 inputs, otherwise float32.

    Raises:
        ValueError: an argument leaves its range or the shapes differ.

    Examples:
        >>> import torch
        >>> z = torch.arange(18.0).reshape(6, 3).sin()
        >>> indexes = torch.tensor([0, 1, 2, 0, 1, 2])
        >>> f"{simclr_hard_negative_loss_func(z, indexes):.4f}"
        '5.1418'
    """
    return simclr_margin_loss_func(z, indexes, temperature, margins, tau_plus, beta)

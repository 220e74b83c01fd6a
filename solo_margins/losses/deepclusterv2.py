"""DeepCluster v2's loss against prototypes, with margins.

References:
    - [0] Unsupervised Learning of Visual Features by Contrasting Cluster Assignments (SwAV, which
      introduces DeepCluster v2), 2020, https://arxiv.org/abs/2006.09882
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from torch import Tensor

from solo_margins.losses.checks import require_assignments, require_embeddings, require_width
from solo_margins.losses.forms import prototypes as loss_with_prototypes
from solo_margins.losses.margins import ContrastSpec, Margins


def deepclusterv2_margin_loss_func(
    z: Tensor,
    prototypes: Tensor,
    assignments: Tensor,
    temperature: float | Tensor = 0.1,
    margins: Margins = Margins(),
) -> Tensor:
    r"""DeepCluster v2's loss of one head, features against prototypes of clusters, with margins.

    $$
    L = -\frac{1}{|A|} \sum_{i \in A} \log
    \frac{e^{z'_i}}{e^{z'_i} + \sum_{k \neq a_i} e^{\cos\theta_{ik}/\tau}}, \qquad
    z'_i = \frac{\cos(\theta_{i a_i} + m_1) - m_2}{\tau}
    $$

    with $a_i$ the prototype that row i is assigned to, its only positive, and $A$ the
    rows that have one; without any the loss is 0. With default margins this is the cross-entropy
    of solo-learn's ``deepclusterv2_loss_func``, value and gradient. Scale, curvature and
    attenuation change gradients, never the value.

    Args:
        z: (M, D) projected features, of all views one below the other. Any floating dtype.
        prototypes: (P, D) centres of the clusters; they get no gradient.
        assignments: (M,) integer number of each row's prototype; -1 leaves the row out.
        temperature: τ > 0, a number or a tensor of one number without gradient.
        margins: the margins; see `Margins`.

    Returns:
        The loss, a scalar; float64 for float64 inputs, otherwise float32. It is the mean over the
        rows of this process.

    Raises:
        ValueError: an argument leaves its range or the shapes differ.

    Examples:
        >>> import torch
        >>> z, prototypes = torch.eye(4) + 0.5, torch.eye(4)
        >>> assignments = torch.tensor([0, 1, 2, -1])
        >>> f"{deepclusterv2_margin_loss_func(z, prototypes, assignments):.4f}"
        '0.0093'
        >>> margins = Margins(subtractive=0.4)
        >>> f"{deepclusterv2_margin_loss_func(z, prototypes, assignments, margins=margins):.4f}"
        '0.4116'
    """
    spec = ContrastSpec(temperature, margins)
    require_embeddings("z", z, "MD")
    require_width("prototypes", prototypes, "PD", "z", z)
    require_assignments(assignments, z, prototypes)
    return loss_with_prototypes(z, prototypes, assignments, spec)

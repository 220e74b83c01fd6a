"""The temperature of Model-Aware Contrastive Learning, which follows how close positives are.

References:
    - [0] Model-Aware Contrastive Learning: Towards Escaping the Dilemmas (MACL), 2022,
      https://arxiv.org/abs/2207.07874
"""

import torch
from torch import Tensor

from solo_margins.losses.checks import (
    POSITIVE,
    UP_TO_ONE,
    require_embeddings,
    require_indexes,
    require_number,
    require_same_shape,
)
from solo_margins.losses.gather import batch_sizes, gather, own_rows, sum_over_ranks
from solo_margins.losses.plain import directions, sample_numbers


@torch.no_grad()
def aligned_temperature(
    query: Tensor,
    key: Tensor,
    base: float,
    factor: float = 0.5,
    reference: float = 0.0,
    is_positive: Tensor | None = None,
) -> Tensor:
    r"""Return a temperature that follows how close positives are, for a loss of the same batch.

    $$
    \tau = \tau_0 (1 + a (A - A_0))
    $$

    with $A$ the mean cosine of all positives, over all processes and without gradient.
    Together with an attenuation of 1 it has the gradient of Model-Aware Contrastive Learning [0].
    A reading of this project: τ does not fall below a tenth of $\tau_0$.

    Args:
        query: (N, D) embeddings; row i belongs to row i of ``key``. Any floating dtype.
        key: (N, D) embeddings.
        base: $\tau_0$ > 0.
        factor: $a$ in [0, 1].
        reference: $A_0$ in [0, 1].
        is_positive: (N,) which of the pairs count; None for all.

    Returns:
        The temperature, a scalar without gradient; float64 for float64 inputs, otherwise float32.

    Raises:
        ValueError: an argument leaves its range or the shapes differ.

    Examples:
        >>> query, key = torch.eye(4), torch.eye(4)
        >>> temperature = aligned_temperature(query, key, 0.1, factor=0.5)
        >>> f"{temperature:.2f}"
        '0.15'
    """
    _check(base, factor, reference)
    require_same_shape("query", query, "key", key)
    rows, partners = directions(query, key)
    cosines = (rows * partners).sum(dim=1)
    if is_positive is None:
        is_positive = torch.ones_like(cosines, dtype=torch.bool)
    total = torch.where(is_positive, cosines, 0.0).sum()
    return _temperature(total, is_positive.sum(), base, factor, reference)


@torch.no_grad()
def aligned_temperature_by_indexes(
    z: Tensor, indexes: Tensor | int, base: float, factor: float = 0.5, reference: float = 0.0
) -> Tensor:
    """Return `aligned_temperature` for positives as in `simclr_margin_loss_func`.

    Args:
        z: (views·N, D) projected features of all views. Any floating dtype.
        indexes: (views·N,) integer id of the sample (or class) that each row belongs to, or the
            number of views. All rows with the same id, in all processes, are positives of each
            other.
        base: $\\tau_0$ > 0.
        factor: $a$ in [0, 1].
        reference: $A_0$ in [0, 1].

    Returns:
        The temperature, a scalar without gradient; float64 for float64 inputs, otherwise float32.

    Raises:
        ValueError: an argument leaves its range or the shapes differ.

    Examples:
        >>> z, indexes = torch.eye(3).repeat(2, 1), torch.tensor([0, 1, 2, 0, 1, 2])
        >>> f"{aligned_temperature_by_indexes(z, indexes, 0.1, factor=0.5):.2f}"
        '0.15'
    """
    _check(base, factor, reference)
    require_embeddings("z", z)
    indexes = require_indexes(indexes, z)
    (own,) = directions(z)
    sizes = batch_sizes(own)
    if isinstance(indexes, int):
        indexes = sample_numbers(indexes, sizes, z.device)
    rows, ids = gather(own, sizes), gather(indexes, sizes)
    ordered = ids.sort().values
    # A group is known by where it begins among the ordered ids.
    group = torch.searchsorted(ordered, ids)
    group_sizes = torch.searchsorted(ordered, ids, right=True) - group
    # The cosines of a row with all rows of its group are one product with the group's sum.
    sums = torch.zeros_like(rows).index_add_(0, group, rows)
    own_part = own_rows(sizes)
    cosines_with_group = (own * sums[group[own_part]]).sum()
    cosines_with_itself = own.square().sum()
    positives = (group_sizes[own_part] - 1).sum()
    total = cosines_with_group - cosines_with_itself
    return _temperature(total, positives, base, factor, reference)


def _check(base: float, factor: float, reference: float) -> None:
    require_number("base", base, POSITIVE)
    require_number("factor", factor, UP_TO_ONE)
    require_number("reference", reference, UP_TO_ONE)


def _temperature(
    total: Tensor, number: Tensor, base: float, factor: float, reference: float
) -> Tensor:
    """Return the temperature from the sum and the number of this rank's cosines of positives."""
    total, number = sum_over_ranks(torch.stack([total, number.to(total.dtype)]))
    # Cosines that are NaN make the loss a NaN; the temperature stays a number.
    alignment = (total / number.clamp_min(1.0)).nan_to_num(reference)
    change = factor * (alignment - reference)
    return base * (1.0 + change).clamp_min(0.1)

r"""The losses written with autograd alone: one similarity matrix, masks, log-sum-exp.

Read this form beside the papers; the engine is tested against it. It runs inside ``torch.compile``,
in the transformations of ``torch.func`` and where gradients are differentiated
(``create_graph=True``). It holds the whole matrix; otherwise value and gradient are those of the
engine. In float32 an angle below 0.02° or within 0.02° of 180° is rounded, as by an arccos.

With θ the angles between rows and columns, every margin effect is one of two steps:

$$
\hat\theta_{ij} = w_{ij} \theta_{ij} + \mathrm{sg}((1 - w_{ij}) \theta_{ij}), \qquad
z_{ij} = (\cos(\hat\theta_{ij} + m_1 p_{ij}) - m_2 p_{ij}) / \tau
$$

References:
    - [0] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526. Equation numbers below are those of [0].
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from solo_margins.losses.gather import batch_sizes, gather, own_rows
from solo_margins.losses.margins import ContrastSpec, Margins


def smallest_norm(dtype: torch.dtype) -> float:
    """Return the norm up to which a vector of this dtype has no direction.

    The gradient of a vector is inversely proportional to its norm. In float64, float32 and bfloat16
    it stays far below the largest number down to this norm; in float16 it may become infinite.
    """
    if dtype == torch.float64:
        return 1e-153  # its square is just a normal number
    if dtype == torch.float16:
        return 0.999 * torch.finfo(dtype).tiny
    return 1e-12


def unit_vectors(x: Tensor) -> Tensor:
    """Return the rows of ``x`` at length one, in float64 for float64 and in float32 otherwise.

    A row up to ``smallest_norm`` has no direction: it becomes zero and so does its gradient, as do
    those of a row whose squares overflow. A gradient that leaves the range of float16 becomes
    infinite, so that a gradient scaler sees it.
    """
    wide = x.to(torch.float64 if x.dtype == torch.float64 else torch.float32)
    length = torch.linalg.vector_norm(wide.detach(), dim=1, keepdim=True)
    missing = length <= smallest_norm(x.dtype)
    present = torch.where(missing, 1.0, wide)
    length = torch.linalg.vector_norm(present, dim=1, keepdim=True)
    return torch.where(missing, 0.0, present / length)


def directions(*embeddings: Tensor) -> list[Tensor]:
    """Return the rows of all embeddings at length one, in one dtype."""
    units = [unit_vectors(x) for x in embeddings]
    common = torch.float64 if any(u.dtype == torch.float64 for u in units) else torch.float32
    return [u.to(common) for u in units]


def cosines(rows: Tensor, columns: Tensor) -> Tensor:
    """Return the cosines between two batches of unit vectors, never in half precision."""
    with torch.autocast(rows.device.type, enabled=False):
        return rows @ columns.t()


def _angles(cosine: Tensor) -> Tensor:
    """Return the arccos with a gradient that is finite everywhere, 0 at the angles 0 and π."""
    square = (1.0 - cosine) * (1.0 + cosine)
    inside = square > 0.0
    sine = torch.where(inside, torch.where(inside, square, 1.0).sqrt(), 0.0)
    return torch.atan2(sine, cosine)


def scale_gradient(x: Tensor, weight: Tensor) -> Tensor:
    """Return ``x`` with ``weight`` times its gradient (Eq. 17)."""
    return x.detach() + weight * (x - x.detach())


def row_losses(
    cosine: Tensor, is_positive: Tensor, is_negative: Tensor, spec: ContrastSpec
) -> Tensor:
    """Return the loss of each row of a matrix of cosines, 0 for a row without a positive."""
    margins, temperature, info = spec.margins, spec.temperature, torch.finfo(cosine.dtype)
    lowest = -info.max / 4  # of logits: e^lowest is 0, and differences stay finite
    # How far q may go to 1 in gradients: the factor 1/(1 - αq) stays finite, and at α = 1 its
    # product with 1 - q stays exactly 1 (Eq. 15). Where β ≠ 1 the factor has no such counterpart.
    widest = -math.log(info.eps) if spec.negatives_weight != 1.0 else -0.7 * math.log(info.tiny)
    positives = is_positive.sum(dim=1, dtype=cosine.dtype).clamp_min(1.0)
    negatives = is_negative.sum(dim=1, dtype=cosine.dtype)

    def log_sum(logits: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask, logits, lowest).logsumexp(dim=1)

    def sums(angle: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-sum of each row's positives, and log(q / (1 - q))."""
        similarity = margins.similarity(angle.cos(), angle.sin())  # Eq. 7
        logits = torch.where(is_positive, similarity, angle.cos()) / temperature
        logits = logits.clamp_min(lowest)
        positive = log_sum(logits, is_positive)
        if spec.beta > 0.0:  # hard negatives
            log_mean = log_sum(spec.beta * logits, is_negative) - negatives.log()
            logits = logits + spec.beta * logits - log_mean.unsqueeze(1)
        if spec.mean is not None:  # those near a cosine count most
            log_weight = spec.log_gaussian(angle.cos())
            log_mean = log_sum(log_weight, is_negative) - negatives.log()
            logits = logits + (log_weight - log_mean.unsqueeze(1))
        negative = log_sum(logits, is_negative)
        if spec.tau_plus > 0.0:  # debiased negatives
            peak = torch.maximum(positive, negative).detach()
            false = negatives * spec.tau_plus * (positive - peak).exp() / positives
            corrected = ((negative - peak).exp() - false) / (1.0 - spec.tau_plus)
            floor = (negatives.log() - 1.0 / temperature - peak).exp()
            negative = torch.maximum(corrected, floor).clamp_min(info.tiny).log() + peak
        log_odds = positive - negative
        return positive, log_odds.detach().clamp_max(widest) + (log_odds - log_odds.detach())

    angle = _angles(cosine)
    weight = torch.where(is_positive, margins.angle_weight(angle.detach()), 1.0)  # Eq. 16–19
    if margins.attenuation > 0.0 or margins.scaling is not None:
        log_odds = sums(angle.detach())[1].unsqueeze(1)
    if margins.scaling is not None:
        weight = weight * margins.own_weight(angle, torch.sigmoid(log_odds), is_positive)
    if margins.attenuation > 0.0:
        complement = torch.sigmoid(-log_odds)  # 1 - q
        factor = 1.0 / (1.0 - margins.attenuation + margins.attenuation * complement)
        attenuated = is_positive | (margins.attenuation_type == "I")  # Eq. 20, 21
        weight = torch.where(attenuated, weight * factor, weight)
    positive, log_odds = sums(scale_gradient(angle, weight))
    # -z + β log Σ exp z (Eq. 6 and 9), written such that β = 1 does not subtract large numbers
    push = spec.negatives_weight
    loss = (push - 1.0) * positive - push * F.logsigmoid(log_odds)
    return torch.where(is_positive.any(dim=1), loss, 0.0)


def total_loss(
    rows: Tensor, columns: Tensor, is_positive: Tensor, is_negative: Tensor, spec: ContrastSpec
) -> Tensor:
    """Return the sum of the losses of all rows that have a positive, from unit vectors."""
    return row_losses(cosines(rows, columns), is_positive, is_negative, spec).sum()


def query_key(
    query: Tensor, key: Tensor, spec: ContrastSpec, with_gradient: bool = False
) -> Tensor:
    """Return the mean loss of queries against all keys; key i is the positive of query i.

    Keys of other ranks are gathered without gradient, unless it is asked for.
    """
    rows, columns = directions(query, key)
    sizes = batch_sizes(rows, spec.gathers)
    columns = gather(columns, sizes, with_gradient)
    number = torch.arange(len(columns), device=rows.device)
    is_positive = number[own_rows(sizes)].unsqueeze(1) == number
    total = total_loss(rows, columns, is_positive, ~is_positive, spec)
    return total * (len(sizes) / sum(sizes))


def same_id(z: Tensor, ids: Tensor, spec: ContrastSpec) -> Tensor:
    """Return the mean loss of rows against all other rows; those with the same id are positives."""
    (rows,) = directions(z)
    sizes = batch_sizes(rows, spec.gathers)
    columns, every = gather(rows, sizes, with_gradient=True), gather(ids, sizes)
    same = every.unsqueeze(1) == every
    is_positive = same & ~torch.eye(len(same), dtype=torch.bool, device=z.device)
    own = own_rows(sizes)
    total = total_loss(rows, columns, is_positive[own], ~same[own], spec)
    return total * len(sizes) / is_positive.any(dim=1).sum().clamp_min(1)


def views(z: Tensor, number: int, spec: ContrastSpec) -> Tensor:
    """Return the mean loss of so many views of distinct samples, each against all other rows."""
    sizes = batch_sizes(z, spec.gathers)
    return same_id(z, sample_numbers(number, sizes, z.device), spec)


def sample_numbers(views: int, sizes: list[int], device: torch.device) -> Tensor:
    """Return ids of this rank's rows, which are so many views of distinct samples, by view."""
    own = own_rows(sizes)
    return torch.arange(own.start // views, own.stop // views, device=device).repeat(views)


def queue(query: Tensor, key: Tensor, negatives: Tensor, spec: ContrastSpec) -> Tensor:
    """Return the mean loss of queries against their own key and the columns of a queue."""
    rows, keys, others = directions(query, key.detach(), negatives.detach().t())
    sizes = batch_sizes(rows, spec.gathers)
    shape = (len(rows), len(rows) + len(others))
    is_positive = torch.eye(*shape, dtype=torch.bool, device=rows.device)
    is_negative = (torch.arange(shape[1], device=rows.device) >= len(rows)).expand(shape)
    total = total_loss(rows, torch.cat([keys, others]), is_positive, is_negative, spec)
    return total * (len(sizes) / sum(sizes))


def prototypes(z: Tensor, centres: Tensor, assignments: Tensor, spec: ContrastSpec) -> Tensor:
    """Return the mean loss of rows against centres; the assigned one is the positive, -1 none."""
    rows, columns = directions(z, centres.detach())
    is_positive = assignments.unsqueeze(1) == torch.arange(len(columns), device=z.device)
    total = total_loss(rows, columns, is_positive, ~is_positive, spec)
    return total / is_positive.sum().clamp_min(1)


def pair_losses(rows: Tensor, targets: Tensor, margins: Margins) -> Tensor:
    """Return minus the similarity with margins of each pair of unit vectors."""
    angle = _angles((rows * targets).sum(dim=1))
    weight = margins.angle_weight(angle.detach())
    if margins.scaling is not None:
        weight = weight * margins.own_weight(angle, torch.zeros_like(angle))
    angle = scale_gradient(angle, weight)
    return -margins.similarity(angle.cos(), angle.sin())


def positives_only(p: Tensor, z: Tensor, margins: Margins) -> Tensor:
    """Return minus the mean similarity with margins of pairs (p_i, z_i), with gradient for p."""
    rows, targets = directions(p, z.detach())
    return pair_losses(rows, targets, margins).mean()


def band_penalties(
    rows: Tensor, columns: Tensor, own: slice, lower: float, upper: float
) -> tuple[Tensor, Tensor]:
    """Return the sum over rows and other columns of the penalty inside the band, and its count."""
    distance = (1.0 - cosines(rows, columns)) / 2.0
    number = torch.arange(len(columns), device=rows.device)
    itself = number[own].unsqueeze(1) == number
    penalty = ((distance - lower) * (upper - distance)).clamp_min(0.0).masked_fill(itself, 0.0)
    return penalty.sum(), (penalty > 0.0).sum()


def polarization(z: Tensor, lower: float, upper: float) -> tuple[Tensor, Tensor]:
    """Return the mean penalty over ordered pairs of rows, and this rank's number in the band."""
    (rows,) = directions(z)
    sizes = batch_sizes(rows)
    columns = gather(rows, sizes, with_gradient=True)
    total, inside = band_penalties(rows, columns, own_rows(sizes), lower, upper)
    return total * (len(sizes) / max(sum(sizes) * (sum(sizes) - 1), 1)), inside

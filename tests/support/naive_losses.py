"""The losses as the papers write them: angles by arccos, one matrix, no care for speed or safety.

The shipped losses are compared with these.
"""

import math
from dataclasses import replace

import torch
import torch.nn.functional as F


def by_row(setting, like):
    """Return a setting, as a column if each row of a matrix has its own."""
    is_column = isinstance(setting, torch.Tensor) and like.dim() == 2
    return setting.unsqueeze(1) if is_column else setting


def naive_weight(angle, q, margins):
    """Eq. 17 and 19, and a function of one's own."""
    weight = by_row(margins.positive_scale, angle) * naive_curve(angle, margins)
    return weight if margins.scaling is None else weight * margins.scaling(angle, q)


def naive_curve(angle, margins):
    if math.isinf(margins.curvature):
        return torch.ones_like(angle)
    if margins.curve != "root":
        power = 1 - (angle / math.pi).abs() ** margins.curvature
        return power if margins.curve == "power" else power ** (1 / margins.curvature)
    return (1 - angle.abs() / math.pi) ** (1 / margins.curvature)


def naive_logits(angle, is_positive, temperature, margins):
    """Eq. 7: angular margin inside the cosine, subtractive margin outside, on positives only."""
    shifted = angle + by_row(margins.angular, angle) * is_positive
    cosine = shifted.cos()
    if margins.beyond_pi == "monotone":
        cosine = torch.where(shifted > math.pi, -2 - shifted.cos(), cosine)
        cosine = torch.where(shifted < 0, 1.0, cosine)
    return (cosine - by_row(margins.subtractive, angle) * is_positive) / temperature


def scaled_angle(angle, weight):
    """Eq. 17, wθ + sg((1 - w)θ), with its two parts in an order that cancels without rounding."""
    return angle.detach() + weight.detach() * (angle - angle.detach())


def row_sums(logits, mask):
    return torch.where(mask, logits, -math.inf).logsumexp(dim=1)


def corrected_negatives(logits, is_positive, is_negative, temperature, tau_plus, beta, gaussian):
    """Return log Ng of debiased (β = 0), hard or Gaussian negatives for every row."""
    count = is_negative.sum(dim=1).to(logits.dtype)
    exponentials = torch.where(is_negative, logits.exp(), 0.0)
    weight = (beta * logits).exp()
    if gaussian is not None:
        mean, width = gaussian
        offset = logits.detach() * temperature - mean
        weight = (-(offset**2) / (2 * width**2)).exp() / (width * math.sqrt(2 * math.pi))
    weight = torch.where(is_negative, weight, 0.0)
    mean_weight = weight.sum(dim=1, keepdim=True) / count.unsqueeze(1)
    negative = (exponentials * weight / mean_weight).sum(dim=1)
    positive = torch.where(is_positive, logits.exp(), 0.0).sum(dim=1) / is_positive.sum(dim=1)
    if tau_plus == 0:
        return negative.log()
    corrected = (negative - count * tau_plus * positive) / (1 - tau_plus)
    return torch.maximum(corrected, count * math.exp(-1 / temperature)).log()


def naive_contrastive(
    rows,
    columns,
    is_positive,
    is_negative,
    temperature,
    margins,
    negatives_weight=1.0,
    tau_plus=None,
    hardness=0.0,
    gaussian=None,
):
    """Return the losses of all rows, by Eq. 9 with the gradients of Eq. 16 to 21."""
    cosine = F.normalize(rows, dim=1) @ F.normalize(columns, dim=1).t()
    # A row with itself is in no sum; arccos has no derivative there.
    angle = torch.where(is_positive | is_negative, cosine, 0.0).acos()

    def sums(logits):
        positive = row_sums(logits, is_positive)
        if tau_plus is None:
            return positive, row_sums(logits, is_negative)
        weights = (temperature, tau_plus, hardness, gaussian)
        return positive, corrected_negatives(logits, is_positive, is_negative, *weights)

    target = is_positive.to(angle.dtype)
    positive, negative = sums(naive_logits(angle, target, temperature, margins).detach())
    # 1 - αq as (1 - α) + α(1 - q): subtracting q from 1 would cost the digits compared here.
    complement = torch.sigmoid(negative - positive)
    attenuation = 1 / (1 - margins.attenuation + margins.attenuation * complement).unsqueeze(1)
    q = torch.sigmoid(positive - negative).unsqueeze(1)
    weight = torch.where(is_positive, naive_weight(angle.detach(), q, margins), 1.0)
    everywhere = margins.attenuation_type == "I"
    weight = torch.where(is_positive | torch.tensor(everywhere), weight * attenuation, weight)
    angle = scaled_angle(angle, weight)
    positive, negative = sums(naive_logits(angle, target, temperature, margins))
    # -z + β log Σ exp z, written such that β = 1 does not subtract two large numbers.
    return (negatives_weight - 1) * positive - negatives_weight * F.logsigmoid(positive - negative)


def of_rows(margins, chosen):
    """Return the margins of some rows, where each row has its own."""
    names = ("angular", "subtractive", "positive_scale")
    values = {name: getattr(margins, name) for name in names}
    tensors = {name: v[chosen] for name, v in values.items() if isinstance(v, torch.Tensor)}
    return replace(margins, **tensors)


def naive_query_key(query, key, s, negatives_weight=1.0, **corrected):
    is_positive = torch.eye(len(query), dtype=torch.bool)
    losses = naive_contrastive(
        query,
        key,
        is_positive,
        ~is_positive,
        s.temperature,
        s.margins,
        negatives_weight,
        **corrected,
    )
    return losses.mean()


def naive_queue(query, key, s, **corrected):
    queue = torch.cat([query, key]).detach() if s.others is None else s.others
    is_positive = torch.eye(len(query), len(query) + len(queue), dtype=torch.bool)
    is_negative = torch.zeros_like(is_positive)
    is_negative[:, len(query) :] = True
    columns = torch.cat([key, queue]).detach()
    return naive_contrastive(
        query, columns, is_positive, is_negative, s.temperature, s.margins, **corrected
    ).mean()


def naive_same_id(z, ids, s, **corrected):
    same = ids.unsqueeze(0) == ids.unsqueeze(1)
    is_positive = same & ~torch.eye(len(z), dtype=torch.bool)
    has = is_positive.any(dim=1)
    margins = of_rows(s.margins, has)
    return naive_contrastive(
        z[has], z, is_positive[has], ~same[has], s.temperature, margins, **corrected
    ).mean()


def naive_views(a, b, s, **corrected):
    ids = torch.arange(len(a)) if s.ids is None else s.ids
    return naive_same_id(torch.cat([a, b]), ids.repeat(2), s, **corrected)


def naive_prototypes(z, centres, s):
    has = s.assignments >= 0
    is_positive = s.assignments[has].unsqueeze(1) == torch.arange(len(centres))
    margins = of_rows(s.margins, has)
    return naive_contrastive(
        z[has], centres, is_positive, ~is_positive, s.temperature, margins
    ).mean()


def naive_positives_only(p, z, margins):
    angle = torch.acos(F.cosine_similarity(p, z.detach(), dim=1))
    angle = scaled_angle(angle, naive_weight(angle.detach(), torch.zeros_like(angle), margins))
    similarity = naive_logits(angle, torch.ones_like(angle), 1.0, margins)
    return (2 - 2 * similarity).mean()


def naive_polarization(z, lower, upper):
    unit = F.normalize(z, dim=1)
    distance = (1 - unit @ unit.t()) / 2
    inside = ((distance - lower) * (distance - upper)).clamp(max=0).abs()
    others = ~torch.eye(len(z), dtype=torch.bool)
    return inside[others].mean()


def hard(s):
    return {"tau_plus": s.tau_plus, "hardness": s.beta}


def gaussian(s, tau_plus=0.0):
    return {"tau_plus": tau_plus, "gaussian": (s.mean, s.width)}


NAIVE = {
    "mocov3": lambda a, b, s: 2 * s.temperature * naive_query_key(a, b, s),
    "nnclr": lambda a, b, s: naive_query_key(b, a, s),
    "generalized": lambda a, b, s: naive_query_key(a, b, s, s.negatives_weight),
    "simclr": naive_views,
    "classes": lambda a, b, s: naive_same_id(a, s.assignments // 2, s),
    "debiased": lambda a, b, s: naive_views(a, b, s, tau_plus=s.tau_plus),
    "hard": lambda a, b, s: naive_views(a, b, s, **hard(s)),
    "mocov2plus": naive_queue,
    "mocov3 hard": lambda a, b, s: 2 * s.temperature * naive_query_key(a, b, s, **hard(s)),
    "nnclr hard": lambda a, b, s: naive_query_key(b, a, s, **hard(s)),
    "mocov2plus hard": lambda a, b, s: naive_queue(a, b, s, **hard(s)),
    "mocov3 gaussian": lambda a, b, s: 2 * s.temperature * naive_query_key(a, b, s, **gaussian(s)),
    "nnclr gaussian": lambda a, b, s: naive_query_key(b, a, s, **gaussian(s, s.tau_plus)),
    "simclr gaussian": lambda a, b, s: naive_views(a, b, s, **gaussian(s)),
    "mocov2plus gaussian": lambda a, b, s: naive_queue(a, b, s, **gaussian(s)),
    "deepclusterv2": lambda a, b, s: naive_prototypes(a, s.others, s),
    "module": lambda a, b, s: naive_views(a, b, replace(s, ids=None)),
    "byol": lambda a, b, s: naive_positives_only(a, b, s.margins),
    "simsiam": lambda a, b, s: naive_positives_only(a, b, s.margins) / 2 - 1,
    "polarization": lambda a, b, s: naive_polarization(torch.cat([a, b]), *s.band),
}
"""The calls of ``loss_calls``, by these formulas."""

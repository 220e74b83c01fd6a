"""The rules of ``rules.yaml``: what the measures of a run say about its settings."""

import math
import re
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from solo_margins.config import setting
from solo_margins.lens.records import Observation
from solo_margins.losses.margins import FIELDS, Margins

LASTING = 5  # consecutive observations that must show a symptom
# By name, the most urgent first.
RULES: Any = OmegaConf.to_container(OmegaConf.load(Path(__file__).with_name("rules.yaml")))
REMEDIES = RULES.pop("remedies")
LOOP_WORDS = RULES.pop("in_a_loop")
SETTING = re.compile(r"[a-z]\w*(?:\.[a-z]\w*)+")
Values = defaultdict[str, Any]


@dataclass
class HealthChecks:
    """Checks observations in order, by the rules of ``rules.yaml``.

    Args:
        cfg: the configuration of the run; empty where it has none.

    Attributes:
        symptoms: the rules that hold as of the last observation, to their texts.
    """

    cfg: Any = field(default_factory=OmegaConf.create)
    symptoms: dict[str, str] = field(default_factory=dict, init=False)
    _warned: set[str] = field(default_factory=set, init=False)
    _in_a_row: dict[str, int] = field(default_factory=dict, init=False)
    _past: dict[str, float] = field(default_factory=dict, init=False)

    def check(self, seen: Observation) -> list[tuple[str, str]]:
        """Return name and text of every new warning."""
        epoch = seen.epoch
        if math.isnan(epoch):
            # Where nobody counts epochs, ten observations stand for one.
            epoch = self._past.get("observations", 0) / (2 * LASTING)
        is_warm = epoch >= 1.0 + float(setting(self.cfg, "scheduler.warmup_epochs", 0.0))
        values = self._values(seen, is_warm)

        in_a_row: dict[str, int] = {}
        self.symptoms = {}
        for name, rule in RULES.items():
            counts_at_once = rule.get("at_once", False)
            if not _holds(rule, values) or not (is_warm or counts_at_once):
                continue
            in_a_row[name] = self._in_a_row.get(name, 0) + 1
            if counts_at_once or in_a_row[name] >= LASTING:
                self.symptoms[name] = self._filled(rule["text"], values)
        self._in_a_row = in_a_row

        warnings = []
        for name, text in self.symptoms.items():
            if RULES[name].get("warns", False) and name not in self._warned:
                self._warned.add(name)
                warnings.append((name, text))
        return warnings

    def _values(self, seen: Observation, is_warm: bool) -> Values:
        r"""Return what rules ask for: margins, measures and what follows from them.

        ===================  ======================================================================
        ``nonfinite``        how many ``observations`` hold a number that is not finite
        ``chance_share``     the loss as a share of that of guessing, without margins in the logits
        ``images``           among how many the loss of guessing guesses
        ``rank_share``       RankMe as a share of its highest value, or of 6
        ``of_rows``          of how many rows it is, as text
        ``vanishing``        share of rows with q above 0.99 whose gradient is that of 1 − q
        ``gain``             (1 − αq)/(1 − q), what α = 1 would multiply the pull by
        ``factor``           1/(1 − αq), what attenuation multiplies the pull by
        ``other_scale``      the effective scale without that factor
        ``angle_ratio``      the angle of positives over that of negatives
        ``angle_change``     this ratio over that after the warm-up
        ``angle_weight``     s · curve at the mean angle of positives
        ``curve_weight``     the curve alone
        ``is_scaled``        1 where positives are scaled by a function, else 0
        ``band_change``      the share of pairs in the band over that after the warm-up
        ``planned_steps``    the length of the whole run, where its configuration has ``max_epochs``
        ===================  ======================================================================

        What there is none of is NaN, of which no comparison holds.
        """
        known = seen.margins.keys() & FIELDS  # other versions have other fields
        margins = Margins(**{name: seen.margins[name] for name in known})
        v: Values = defaultdict(lambda: math.nan)
        v.update(asdict(margins))
        v["negatives_weight"] = 1.0
        v.update(seen.scalars)
        v["angle_ratio"] = _ratio(v["positive_angle"], v["negative_angle"])
        self._remember(seen, v, is_warm)
        v.update(self._past)

        v["images"] = round(math.exp(v["chance_loss"]), 1)
        if not (margins.angular or margins.subtractive):
            v["chance_share"] = _ratio(v["loss"], v["chance_loss"])
        v["rank_share"] = _ratio(v["rankme"], max(v["highest_rankme"], 6.0))
        v["of_rows"] = ""
        if "rankme_rows" in seen.scalars:
            v["of_rows"] = f" ({v['rankme_rows']:.0f} rows)"
        if v["negatives_weight"] == 1.0:
            v["vanishing"] = v["saturated_q"]
        remainder = 1.0 - margins.attenuation * v["q"]
        v["gain"] = _ratio(remainder, 1.0 - v["q"])
        v["factor"] = _ratio(1.0, remainder)
        v["other_scale"] = v["effective_scale"]
        if margins.attenuation:
            v["other_scale"] *= remainder
        v["push_over_pull"] = _ratio(v["push"], v["pull"])
        v["degrees"] = math.degrees(v["positive_angle"])
        v["angle_change"] = _ratio(v["angle_ratio"], v["earlier_angle_ratio"])
        v["band_change"] = _ratio(v["pairs_in_band"], v["earlier_pairs_in_band"])
        v["angle_weight"] = margins.angle_weight(torch.tensor(v["positive_angle"])).item()
        v["curve_weight"] = v["angle_weight"] / margins.positive_scale
        v["planned_steps"] = self._planned_steps(seen)
        v["is_scaled"] = float("scaling" in seen.margins)
        for name, remedies in REMEDIES.items():
            # The last one always fits.
            fitting = [remedy["text"] for remedy in remedies if _holds(remedy, v)]
            v[name] = fitting[0].format_map(v)
        return v

    def _planned_steps(self, seen: Observation) -> float:
        """Return how many steps the run will have, NaN where that is not known."""
        epochs = float(setting(self.cfg, "max_epochs") or math.nan)
        if not (seen.epoch > 0 and epochs > 0):
            return math.nan
        return seen.step / seen.epoch * epochs

    def _remember(self, seen: Observation, values: Values, is_warm: bool) -> None:
        """Keep what later observations are compared with."""
        past = self._past
        past["observations"] = past.get("observations", 0) + 1
        past.setdefault("nonfinite", 0)
        if not all(math.isfinite(value) for value in seen.scalars.values()):
            past["nonfinite"] += 1
        for name in ("rankme", "pairs_in_band"):
            if name in seen.scalars:
                past[f"highest_{name}"] = max(past.get(f"highest_{name}", 0.0), values[name])
        if is_warm:
            past.setdefault("earlier_angle_ratio", values["angle_ratio"])
            past.setdefault("earlier_pairs_in_band", values["pairs_in_band"])

    def _filled(self, text: str, values: Values) -> str:
        """Return a rule's text with the measures and the present value of each setting."""

        def with_value(key: re.Match[str]) -> str:
            # Margins and temperature may be scheduled: those of the observation.
            value = values.get(key[0].rpartition(".")[2], setting(self.cfg, key[0]))
            is_number = isinstance(value, (int, float))
            return f"{key[0]} (now {value:g})" if is_number else key[0]

        text = SETTING.sub(with_value, text.format_map(values))
        if "method_kwargs" not in self.cfg:
            for words, in_a_loop in LOOP_WORDS.items():
                text = text.replace(words, in_a_loop)
        return text


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.inf


def _holds(rule: dict[str, Any], values: Values) -> bool:
    """Return whether all measures pass the limits of a rule or a remedy."""
    for name, limit in rule.get("above", {}).items():
        if not values[name] > limit:  # NaN passes no limit
            return False
    return all(values[name] < limit for name, limit in rule.get("below", {}).items())

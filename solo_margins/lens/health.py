"""What the measures of a run say about its settings: warnings as it trains, advice afterwards."""

import math
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from solo_margins.config import setting
from solo_margins.lens import records
from solo_margins.losses.margins import FIELDS, Margins

LASTING = 5  # consecutive observations that must show a symptom
MOST_LINES = 5  # of advice
# By name, the most urgent first.
RULES: Any = OmegaConf.to_container(OmegaConf.load(Path(__file__).with_name("rules.yaml")))
REMEDIES = RULES.pop("remedies")
SETTING = re.compile(r"[a-z]\w*(?:\.[a-z]\w*)+")
Values = defaultdict[str, Any]


@dataclass
class HealthChecks:
    """Checks observations in order, by the rules of ``rules.yaml``.

    Args:
        cfg: the configuration of the run.

    Attributes:
        symptoms: the rules that hold as of the last observation, to their texts.
    """

    cfg: Any = field(default_factory=OmegaConf.create)
    symptoms: dict[str, str] = field(default_factory=dict, init=False)
    _warned: set[str] = field(default_factory=set, init=False)
    _in_a_row: dict[str, int] = field(default_factory=dict, init=False)
    _past: dict[str, float] = field(default_factory=dict, init=False)

    def check(self, seen: records.Observation) -> list[tuple[str, str]]:
        """Return name and text of every new warning."""
        # Where nobody counts epochs, ten observations stand for one.
        counted = self._past.get("observations", 0) / (2 * LASTING)
        epoch = counted if math.isnan(seen.epoch) else seen.epoch
        is_warm = epoch >= 1.0 + float(setting(self.cfg, "scheduler.warmup_epochs", 0.0))
        values = self._values(seen, is_warm)
        self._in_a_row = {
            name: self._in_a_row.get(name, 0) + 1
            for name, rule in RULES.items()
            if (is_warm or "at_once" in rule) and _holds(rule, values)
        }
        self.symptoms = {
            name: self._filled(RULES[name]["text"], values)
            for name, times in self._in_a_row.items()
            if times >= LASTING or "at_once" in RULES[name]
        }
        warnings = [name for name in self.symptoms if "warns" in RULES[name]]
        new = [(name, self.symptoms[name]) for name in warnings if name not in self._warned]
        self._warned.update(warnings)
        return new

    def _values(self, seen: records.Observation, is_warm: bool) -> Values:
        r"""Return what rules ask for: margins, measures and what follows from them.

        ===================  ======================================================================
        ``nonfinite``        how many ``observations`` hold a number that is not finite
        ``chance_share``     the loss as a share of log N, without margins in the logits
        ``rank_share``       the effective rank as a share of its highest value, or of 6
        ``gain``             (1 − αq)/(1 − q), what α = 1 would multiply the pull by
        ``factor``           1/(1 − αq), what attenuation multiplies gradients by
        ``other_scale``      the effective scale without that factor
        ``angle_ratio``      the angle of positives over that of negatives
        ``angle_change``     this ratio over that after the warm-up
        ``curve_weight``     what the curve leaves of a positive at the mean angle
        ``band_change``      the share of pairs in the band over that after the warm-up
        ===================  ======================================================================

        What there is none of is NaN, of which no comparison holds.
        """
        past, known = self._past, seen.margins.keys() & FIELDS  # other versions have other fields
        margins = Margins(**{name: seen.margins[name] for name in known})
        v: Values = defaultdict(lambda: math.nan, {**asdict(margins), **seen.scalars})
        is_finite = all(map(math.isfinite, seen.scalars.values()))
        v["angle_ratio"] = _ratio(v["positive_angle"], v["negative_angle"])
        past["observations"] = past.get("observations", 0) + 1
        past["nonfinite"] = past.get("nonfinite", 0) + (not is_finite)
        for name in {"effective_rank", "pairs_in_band"} & seen.scalars.keys():
            past[f"highest_{name}"] = max(past.get(f"highest_{name}", 0.0), v[name])
        for name in ("angle_ratio", "pairs_in_band") if is_warm else ():
            past.setdefault(f"earlier_{name}", v[name])
        v.update(past)
        left, is_margined = 1.0 - v["attenuation"] * v["q"], margins.angular or margins.subtractive
        v.update(
            images=math.exp(v["chance_loss"]),
            chance_share=math.nan if is_margined else _ratio(v["loss"], v["chance_loss"]),
            rank_share=_ratio(v["effective_rank"], max(v["highest_effective_rank"], 6.0)),
            gain=_ratio(left, 1.0 - v["q"]),
            factor=_ratio(1.0, left),
            other_scale=v["effective_scale"] * (left if margins.attenuation else 1.0),
            push_over_pull=_ratio(v["push"], v["pull"]),
            degrees=math.degrees(v["positive_angle"]),
            angle_change=_ratio(v["angle_ratio"], v["earlier_angle_ratio"]),
            band_change=_ratio(v["pairs_in_band"], v["earlier_pairs_in_band"]),
        )
        weight = margins.angle_weight(torch.tensor(v["positive_angle"])).item()
        v["curve_weight"] = weight / margins.positive_scale
        for name, remedies in REMEDIES.items():
            v[name] = next(one["text"].format_map(v) for one in remedies if _holds(one, v))
        return v

    def _filled(self, text: str, values: Values) -> str:
        """Return a rule's text with the measures and the present value of each setting."""

        def now(key: re.Match[str]) -> str:
            # Margins and temperature may be scheduled: those of the observation.
            value = values.get(key[0].rpartition(".")[2], setting(self.cfg, key[0]))
            # Without a configuration a user knows margins and temperature by their own names.
            name = key[0] if self.cfg else key[0].removeprefix("method_kwargs.")
            return f"{name} (now {value:g})" if isinstance(value, (int, float)) else name

        return SETTING.sub(now, text.format_map(values))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.inf


def _holds(rule: dict[str, Any], values: Values) -> bool:
    above, below = rule.get("above", {}).items(), rule.get("below", {}).items()
    is_above = all(values[name] > limit for name, limit in above)
    return is_above and all(values[name] < limit for name, limit in below)


def advise(arguments: Sequence[str]) -> str:
    """Return advice on a run from what the lens recorded of it: one to five lines.

    Raises:
        ValueError: not one run is named, or the lens recorded nothing of it.
    """
    if len(arguments) != 1:
        raise ValueError("Name the folder of one run: advise RUN.")
    file = Path(arguments[0]) / records.FILE
    run = records.read(file.parent) if file.is_file() else records.LensRun()
    if not run.observations:
        found = "has no observations" if file.is_file() else "does not exist"
        raise ValueError(f"{file} {found}: advice needs a run with lens.enabled=true.")
    for problem in run.problems:
        print(problem, file=sys.stderr)
    settings = run.header.get("settings")
    checks = HealthChecks(OmegaConf.create(settings if isinstance(settings, dict) else {}))
    for seen in run.observations:
        checks.check(seen)
    lines = [f"{text[0].upper()}{text[1:]}." for text in checks.symptoms.values()][:MOST_LINES]
    few = f" Most rules need {LASTING} observations after the warm-up and an epoch more."
    return "\n".join(lines) or f"Nothing to advise after step {run.observations[-1].step:,}.{few}"

"""Settings of the margin methods, read from a configuration and checked before training starts."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from omegaconf import DictConfig, OmegaConf

from solo_margins.losses.margins import FIELDS, Margins

# YAML writes infinity as .inf; on Hydra's command line that stays a word.
INFINITY_WORDS = (".inf", "inf", "infinity")

# A data set's recipe sets the heads of every method, so each accepts what another needs.
METHOD_SETTINGS = (
    "proj_output_dim",
    "proj_hidden_dim",
    "pred_hidden_dim",
    "temperature",
    "margins",
)


def margins_from(settings: Mapping[str, Any] | None) -> Margins:
    """Return the margins that ``method_kwargs.margins`` describes; absent fields are off.

    Raises:
        ValueError: a field is unknown or leaves its range; the message names the setting.

    Example:
        >>> margins_from({"positive_scale": 20, "curvature": ".inf"}).positive_scale
        20.0
        >>> margins_from({"scale": 20})
        Traceback (most recent call last):
        ...
        ValueError: method_kwargs.margins has no field 'scale'; its fields are angular, \
subtractive, positive_scale, curvature, attenuation, attenuation_type, curve, beyond_pi
    """
    given = {str(name): value for name, value in (settings or {}).items()}
    for name in given:
        if name not in FIELDS:
            raise ValueError(
                f"method_kwargs.margins has no field {name!r}; its fields are {', '.join(FIELDS)}"
            )
    for name, value in given.items():
        if isinstance(value, str) and value.lower() in INFINITY_WORDS:
            given[name] = float("inf")
    try:
        return Margins(**given)
    except ValueError as reason:
        raise ValueError(f"method_kwargs.margins.{reason}") from None


def complete_method_settings(cfg: DictConfig) -> DictConfig:
    """Return the configuration with every field of the margins written out.

    Raises:
        ValueError: ``method_kwargs`` holds an unknown setting, or margins that are impossible.
    """
    for name in cfg.method_kwargs:
        if name not in METHOD_SETTINGS:
            raise ValueError(
                f"method_kwargs has no setting {name!r} for method={cfg.method}; "
                f"its settings are {', '.join(METHOD_SETTINGS)}"
            )
    margins = margins_from(OmegaConf.select(cfg, "method_kwargs.margins", default=None))
    OmegaConf.update(cfg, "method_kwargs.margins", asdict(margins), force_add=True)
    return cfg

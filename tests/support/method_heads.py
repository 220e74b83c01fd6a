"""Heads of the methods that tests configure."""

from solo.methods import METHODS

from solo_margins.methods.base import SHARED_SETTINGS

HEADS = {
    "proj_hidden_dim": 16,
    "proj_output_dim": 8,
    "pred_hidden_dim": 16,
    "temperature": 0.2,
}


def keep_heads_of_method(cfg, overrides):
    """Remove settings of heads that the method does not have, except those of overrides."""
    own = getattr(METHODS.get(cfg.method), "own_settings", None)
    if own is None:
        # A method of solo-learn's own passes over settings that it does not know.
        return cfg
    known = (*SHARED_SETTINGS, *own)
    for name in HEADS:
        is_asked_for = any(text.startswith(f"method_kwargs.{name}=") for text in overrides)
        if name not in known and not is_asked_for:
            cfg.method_kwargs.pop(name, None)
    return cfg

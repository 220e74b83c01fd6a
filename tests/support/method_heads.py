"""Heads of the methods that tests configure."""

from solo_margins.training.known_keys import method_settings

HEADS = {
    "proj_hidden_dim": 16,
    "proj_output_dim": 8,
    "pred_hidden_dim": 16,
    "temperature": 0.2,
}


def keep_heads_of_method(cfg, overrides):
    """Remove settings of heads that the method does not have, except those of overrides."""
    known = method_settings(cfg.method)
    for name in HEADS:
        is_asked_for = any(text.startswith(f"method_kwargs.{name}=") for text in overrides)
        if known is not None and name not in known and not is_asked_for:
            cfg.method_kwargs.pop(name, None)
    return cfg

"""What is broken in solo-learn's repository on today's stack, and how it is repaired.

One module for each repair: its docstring says what happens without it, ``CHANGES`` what is changed.
None depends on a setting or state of ours, so that each can be offered to solo-learn.
"""

import importlib

from solo_margins.host.changes import Repair

_NAMES = """
    online_knn accuracy_with_few_classes_or_labels loss_without_labels trainer_settings
    narrow_convolutions_on_the_cpu configuration_of_the_classifier whitening_in_full_precision
    warmup_cosine static_rates_in_checkpoints momentum_after_resuming clusters_in_checkpoints
    auto_resume_of_the_same_run
"""
# In the order in which they are applied.
NAMES = tuple(_NAMES.split())


def load(names: tuple[str, ...] = NAMES) -> list[Repair]:
    """Return repairs by their names."""
    found = []
    for name in names:
        module = importlib.import_module(f"{__name__}.{name}")
        symptoms = " ".join((module.__doc__ or "").split())
        found.append(Repair(name, symptoms, module.CHANGES))
    return found

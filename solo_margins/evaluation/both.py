"""Linear probe and nearest neighbours of one checkpoint, from features that are extracted once."""

from __future__ import annotations

import time
from collections.abc import Sequence

from solo_margins.evaluation.command import parse
from solo_margins.evaluation.knn import knn_accuracy
from solo_margins.evaluation.probe import OWN, PROTOCOL, ProbeResult, check_probe, probe_features
from solo_margins.evaluation.subject import load_subject
from solo_margins.runner.program import explained


def linear_and_knn(
    arguments: Sequence[str], progress: bool = True
) -> tuple[ProbeResult, dict[str, float]]:
    """Return what :func:`~solo_margins.evaluation.probe.probe` and the kNN vote would return.

    Args:
        arguments: ``key=value`` settings of the fast probe; those of the vote have their defaults.
        progress: whether there are progress bars.
    """
    with explained():
        cfg, own = parse(arguments, OWN, PROTOCOL)
        passes, device = own["passes"], own["device"]
        check_probe(cfg, passes, own["extraction_batch_size"])
        how = {
            "batch_size": own["extraction_batch_size"],
            "device": device,
            "progress": progress,
        }
        began = time.perf_counter()
        subject = load_subject(cfg)
        validation = subject.features(subject.validation, title="validation", **how)
        centre = subject.features(subject.train, title="training", **how)
        seen = subject.features(subject.train, passes, title="crops", **how) if passes else centre
        seconds = time.perf_counter() - began
        layer = probe_features(subject, seen, validation, passes, seconds, device, progress)
        return layer, knn_accuracy(centre, validation)

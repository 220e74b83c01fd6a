"""How good a pretrained backbone is: its frozen features, extracted once and then classified.

- :func:`solo_margins.evaluation.probe.probe`: a linear layer, by the protocol of ``linear.yaml``
- :func:`solo_margins.evaluation.knn.knn`: a weighted vote of nearest neighbours

Both are commands, too: ``python -m solo_margins.probe …`` and ``python -m solo_margins.knn …``.
"""

"""How good a pretrained backbone is: its frozen features, extracted once and then classified.

- `solo_margins.evaluation.probe.probe`: a linear layer, by the protocol of ``linear.yaml``
- `solo_margins.evaluation.knn.knn`: a weighted vote of nearest neighbours, and recall@1
- `solo_margins.evaluation.transfer.transfer`: both on several data sets, as a table

All are commands, too: ``python -m solo_margins.probe …``, ``….knn …`` and ``….transfer …``.
"""

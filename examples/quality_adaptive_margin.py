"""AdaFace's margins in SimCLR: rows with long vectors get other margins than those with short ones.

A method of one's own: a subclass in one file, registered under a name, trained on the digits.

    python examples/quality_adaptive_margin.py max_epochs=5 margins.angular=0.3

The length of a vector before normalisation tells how good an image is (AdaFace,
https://arxiv.org/abs/2204.00964, Section 3.3). With the setting margins.angular as m and the
standardised length, times h and clipped to [-1, 1], as z, the margins of a row are m1 = -m z and
m2 = m z + m. AdaFace has running statistics for small batches; here those of the batch do.
"""

import sys
from dataclasses import replace

from solo.methods import METHODS
from torch import Tensor

from solo_margins.losses import Margins
from solo_margins.methods.simclr_margin import SimCLRMargin
from solo_margins.resolvers import composed
from solo_margins.training import pretrain

H = 0.333  # the paper's


class QualityAdaptiveSimCLR(SimCLRMargin):
    """SimCLR whose rows have margins by the lengths of their vectors."""

    margins_by_row = ("subtractive",)  # not to be set or scheduled: it is computed below

    def margins_for(self, rows: Tensor) -> Margins:
        """Return the margins with an angular and a subtractive one for each row."""
        lengths = rows.detach().norm(dim=1)
        z = (lengths - lengths.mean()) / (lengths.std() + 0.001)
        z = (z * H).clamp(-1, 1)
        m = self.margins.angular
        return replace(self.margins, angular=-m * z, subtractive=m * z + m)


if __name__ == "__main__":
    METHODS["quality_adaptive_simclr"] = QualityAdaptiveSimCLR
    settings = ["variant=baseline", "margins.angular=0.4", "name=quality", *sys.argv[1:]]
    cfg = composed("simclr_margin.yaml", settings)
    cfg.method = "quality_adaptive_simclr"
    pretrain(cfg)

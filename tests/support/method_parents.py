"""Our methods and the methods of the host that they derive from."""

import pytest

from solo_margins import host

# Each of our methods, the method of the host that it derives from, and what that needs besides.
_EVERY = {
    "mocov3_margin": ("mocov3", []),
    "simclr_margin": ("simclr", []),
    "byol_curv": ("byol", []),
    "mocov2plus_margin": ("mocov2plus", ["method_kwargs.queue_size=16"]),
    "nnclr_margin": ("nnclr", ["method_kwargs.queue_size=16"]),
    "supcon_margin": ("supcon", []),
    "deepclusterv2_margin": (
        "deepclusterv2",
        [
            "method_kwargs.num_prototypes=[3,3]",
            "method_kwargs.kmeans_iters=2",
            "max_epochs=2",  # the first epoch has no clusters yet
        ],
    ),
    "simsiam_curv": ("simsiam", []),
    "nnsiam_curv": ("nnsiam", ["method_kwargs.queue_size=16"]),
    "nnbyol_curv": ("nnbyol", ["method_kwargs.queue_size=16"]),
    "wmse_curv": (
        "wmse",
        ["method_kwargs.whitening_size=8", "method_kwargs.proj_output_dim=4"],
    ),
}


# The release is adapted for these.
_ON_THE_RELEASE = ("mocov3_margin", "simclr_margin", "byol_curv")
# Those that the installed solo-learn offers: tests of others are not collected.
PARENTS = {
    method: parent
    for method, parent in _EVERY.items()
    if host.form() == "main" or method in _ON_THE_RELEASE
}


def needs(method):
    """Return the settings that a method needs, or skip the test where the host lacks it."""
    if method not in PARENTS:
        pytest.skip(f"the release of solo-learn is not adapted for {method}")
    return _EVERY[method][1]

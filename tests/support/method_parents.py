"""Our methods and the methods of solo-learn that they derive from."""

from solo.methods import METHODS

# Each of our methods, the method of solo-learn that it derives from, and what that needs besides.
ALL_PARENTS = {
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


# Those that the installed solo-learn has.
PARENTS = {name: parent for name, parent in ALL_PARENTS.items() if name in METHODS}


def needs(method):
    """Return the settings that a method needs."""
    return PARENTS[method][1]

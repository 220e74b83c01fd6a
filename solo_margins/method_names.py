"""The names of our methods in configurations."""

METHOD_NAMES = (
    "mocov3_margin",
    "simclr_margin",
    "byol_curv",
    "mocov2plus_margin",
    "nnclr_margin",
    "supcon_margin",
    "deepclusterv2_margin",
    "simsiam_curv",
    "nnsiam_curv",
    "nnbyol_curv",
    "wmse_curv",
)
# Other names of methods, and the names that their runs are recorded under.
ALIASES = {
    "byol_margin": "byol_curv",
    "simsiam_margin": "simsiam_curv",
    "nnsiam_margin": "nnsiam_curv",
    "nnbyol_margin": "nnbyol_curv",
    "wmse_margin": "wmse_curv",
}

# solo-learn's own methods; its release has some of them only.
OF_SOLO_LEARN = (
    "all4one",
    "barlow_twins",
    "byol",
    "deepclusterv2",
    "dino",
    "linear",
    "mae",
    "mocov2plus",
    "mocov3",
    "nnbyol",
    "nnclr",
    "nnsiam",
    "ressl",
    "simclr",
    "simsiam",
    "supcon",
    "swav",
    "vibcreg",
    "vicreg",
    "wmse",
)


def canonical_name(method: str) -> str:
    """Return the name that a method is recorded under.

    Examples:
        >>> canonical_name("byol_margin"), canonical_name("mocov3_margin")
        ('byol_curv', 'mocov3_margin')
    """
    return ALIASES.get(method, method)

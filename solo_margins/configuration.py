"""What our YAML files need besides Hydra itself: a resolver for embedded data, and the recipes."""

from omegaconf import OmegaConf

from solo_margins.data.digits import digits_folder
from solo_margins.recipes import store_recipes


def install() -> None:
    """Make ``${solo_margins.digits:<split>}`` and the recipes known; a second call is harmless."""
    OmegaConf.register_new_resolver("solo_margins.digits", digits_folder, replace=True)
    store_recipes()

"""Augmentations as configurations hold them."""


def augmentations(crop_size=16, num_crops=2, **changes):
    """Return the settings of one view, in which everything but equalization is on."""
    settings = {
        "rrc": {"enabled": True, "crop_min_scale": 0.5, "crop_max_scale": 1.0},
        "color_jitter": {
            "prob": 0.8,
            "brightness": 0.4,
            "contrast": 0.4,
            "saturation": 0.2,
            "hue": 0.1,
        },
        "grayscale": {"prob": 0.2},
        "gaussian_blur": {"prob": 0.5},
        "solarization": {"prob": 0.2},
        "equalization": {"prob": 0.0},
        "horizontal_flip": {"prob": 0.5},
        "crop_size": crop_size,
        "num_crops": num_crops,
    }
    return {**settings, **changes}

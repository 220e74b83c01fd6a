"""Images that are much smaller than their views are reported before the first step."""

import damaged_images
import pytest
from PIL import Image

from solo_margins.data.datamodule import RunData


@pytest.fixture
def warnings_of(config, view, caplog):
    """Open the data of a pretraining with views of some size, and return what is said of it."""

    def make(size, *overrides):
        cfg = config("simclr", *overrides)
        cfg.augmentations = [view(size), view(16)]
        caplog.clear()
        RunData(cfg, pretraining=True)
        return [record.getMessage() for record in caplog.records if "enlarged" in record.message]

    return make


@pytest.mark.parametrize("overrides", [(), ("data.format=tensors",), ("data.fraction=0.5",)])
def test_views_of_more_than_twice_the_size_are_reported(warnings_of, overrides):
    # The images have 36 × 40 pixels.
    overrides = (*overrides, "optimizer.batch_size=4")
    assert warnings_of(72, *overrides) == []
    [sentence] = warnings_of(73, *overrides)
    assert "are 36 px and are enlarged to 73" in sentence
    assert "augmentations.*.crop_size=36" in sentence
    assert "\n" not in sentence


def test_only_the_first_rank_reports(warnings_of, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert warnings_of(224) == []


def test_single_images_of_other_sizes_and_damaged_ones_do_not_count(
    warnings_of, image_folder, tmp_path
):
    images = damaged_images.copied(image_folder, tmp_path / "images")
    for number, folder in enumerate(damaged_images.classes(images)):
        damaged_images.write_unreadable(folder, "text.png")
        Image.new("RGB", (9, 9)).save(folder / f"!{number}.png")
    assert warnings_of(64, f"data.train_path={images / 'train'}") == []


def test_a_probe_is_shown_what_its_backbone_was_trained_on(linear_config, caplog):
    RunData(linear_config(augmentations={"crop_size": 224}), pretraining=False)
    assert "enlarged" not in caplog.text

"""Image files of every mode are read; damaged ones are named."""

import damaged_images
import numpy as np
import pytest

from solo_margins.data.class_folders import UnreadableImage, read_image


def test_every_mode_shows_the_same_picture(tmp_path, recwarn):
    for path in damaged_images.write_readable(tmp_path):
        image = read_image(path)
        assert image.mode == "RGB"
        pixels = np.asarray(image).astype(float)
        expected = np.linspace(0, 255, 36 * 40).reshape(36, 40, 1)
        assert abs(pixels - expected).max() < 12, f"{path.name}: clipped, inverted or a later frame"
    assert not [w for w in recwarn if "Palette" in str(w.message)]


@pytest.mark.parametrize("name", damaged_images.UNREADABLE)
def test_an_unreadable_file_is_named_with_the_reason(tmp_path, name):
    path = damaged_images.write_unreadable(tmp_path, name)
    with pytest.raises(UnreadableImage) as caught:
        read_image(path)
    [sentence] = str(caught.value).splitlines()
    file, _, reason = sentence.partition(" cannot be read as an image: ")
    assert file == str(path)
    assert len(reason) > 10


def test_a_name_that_cannot_be_printed_is_escaped(tmp_path):
    path = tmp_path / "two\nlines.png"
    path.write_text("no image")
    with pytest.raises(UnreadableImage, match=r"two\\nlines\.png"):
        read_image(path)
    with pytest.raises(UnreadableImage, match=r"no such file or directory"):
        read_image(tmp_path / "gone.png")


def test_an_error_of_a_worker_is_reduced_to_its_sentence():
    error = UnreadableImage("a.png cannot be read as an image: the file is empty.")
    trace = f"Caught UnreadableImage.\nTraceback\n{type(error).__module__}.UnreadableImage: {error}"
    assert str(UnreadableImage(trace)) == str(error)

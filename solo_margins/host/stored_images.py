"""The classes that solo-learn reads images with, obeying what a configuration says about reading.

They replace torchvision's in the name spaces of solo-learn's own modules, never in torchvision.
Without a word in the configuration they behave as torchvision's do.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from urllib.error import URLError

import torchvision
from torchvision.datasets.folder import ImageFolder, is_image_file, make_dataset

from solo_margins.host import named_data


def read_as_configured(pretraining: Any, classification: Any) -> None:
    """Let two modules of solo-learn read images as configured; a second call changes nothing.

    Symptoms: solo-learn downloads CIFAR and STL-10 unasked; a folder of unlabelled images is taken
    for a class.

    Args:
        pretraining: the module that reads images for pretraining.
        classification: the module that reads them for probing and validation.
    """
    datasets = SimpleNamespace(
        **{name.upper(): _downloading_when_asked(name) for name in named_data.READ_FROM_FILES}
    )
    for module, folder in ((pretraining, FolderWithUnlabelled), (classification, LabelledFolder)):
        module.torchvision = SimpleNamespace(datasets=datasets)
        module.STL10 = datasets.STL10
        module.ImageFolder = folder


def _downloading_when_asked(name: str) -> Any:
    data = named_data.NAMED[name]
    released: Any = getattr(torchvision.datasets, name.upper())

    class StoredImages(released):
        def __init__(self, root: Any, *args: Any, download: bool = False, **kwargs: Any) -> None:
            wanted = named_data.current().download
            if wanted is None:
                super().__init__(root, *args, download=download, **kwargs)
                return
            try:
                super().__init__(root, *args, download=wanted, **kwargs)
            except URLError as error:
                raise ValueError(
                    f"{data.title} could not be downloaded from {self.url}: {error.reason}."
                ) from error
            except (RuntimeError, FileNotFoundError) as error:
                reason = f"its files in {root} are absent, incomplete or damaged"
                raise ValueError(data.missing(reason)) from error

    StoredImages.__name__ = StoredImages.__qualname__ = released.__name__
    return StoredImages


class LabelledFolder(ImageFolder):
    """Images in class folders; a folder of unlabelled images beside them is left out."""

    def find_classes(self, directory: Any) -> tuple[list[str], dict[str, int]]:
        """Return the class folders and their labels."""
        classes, _ = super().find_classes(directory)
        unlabelled = named_data.current().unlabelled_folder
        classes = [name for name in classes if unlabelled is None or name != unlabelled.name]
        return classes, {name: label for label, name in enumerate(classes)}


class FolderWithUnlabelled(LabelledFolder):
    """Images in class folders, and those of the folder of unlabelled images with label −1."""

    def __init__(self, root: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(root, *args, **kwargs)
        folder = named_data.current().unlabelled_folder
        if folder is not None:
            found = make_dataset(folder.parent, {folder.name: -1}, is_valid_file=is_image_file)
            self.samples.extend(found)
            self.targets.extend(label for _, label in found)

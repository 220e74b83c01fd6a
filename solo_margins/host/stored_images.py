"""The classes that solo-learn reads images with, obeying what a configuration says about reading.

They replace torchvision's in the name spaces of solo-learn's own modules, never in torchvision.
Hidden files are no images, whoever reads them, and every error names its file.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import URLError

import torchvision
from torch.utils.data import Dataset
from torchvision.datasets.folder import ImageFolder

from solo_margins.host import class_folders, named_data
from solo_margins.host.image_files import read_image
from solo_margins.host.skipped_images import ReadsImages


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


class LabelledFolder(ReadsImages, ImageFolder):
    """Images in class folders; a folder of unlabelled images beside them is left out."""

    def __init__(self, root: Any, transform: Any = None, target_transform: Any = None) -> None:
        super().__init__(root, transform, target_transform, loader=read_image)
        self.remember_skipped()

    @staticmethod
    def make_dataset(directory: Any, class_to_idx: dict[str, int], *_: Any, **__: Any) -> Any:
        """Return every image with its label; torchvision would take hidden files too."""
        return class_folders.labelled_images(directory, class_to_idx)

    def find_classes(self, directory: Any) -> tuple[list[str], dict[str, int]]:
        """Return the class folders and their labels."""
        reading = named_data.current()
        known = reading.classes_of(directory)
        if known is None:
            known = tuple(class_folders.classes_in(directory, reading.unlabelled_folder))
            if not known:
                raise ValueError(class_folders.no_images("The folder", directory))
        return list(known), {name: label for label, name in enumerate(known)}

    def file(self, index: int) -> str:
        """Return the file of an image."""
        return str(self.samples[index][0])


class FolderWithUnlabelled(LabelledFolder):
    """Images in class folders, and those of the folder of unlabelled images with label −1."""

    def __init__(self, root: Any, transform: Any = None, target_transform: Any = None) -> None:
        super().__init__(root, transform, target_transform)
        folder = named_data.current().unlabelled_folder
        if folder is not None:
            found = class_folders.labelled_images(folder.parent, {folder.name: -1})
            self.samples.extend(found)
            self.targets.extend(label for _, label in found)
            self.remember_skipped()


class _ImagesOfOneFolder(Dataset[Any]):
    """Images that lie in a folder itself, in the order of their names, with label −1."""

    def __init__(self, root: Any, transform: Any = None) -> None:
        class_folders.check_unlabelled("The folder", Path(root))
        self.root = Path(root)
        self.transform = transform
        self.images = class_folders.images_in(root)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = read_image(self.root / self.images[index])
        return (image if self.transform is None else self.transform(image)), -1

    def __len__(self) -> int:
        return len(self.images)


class UnlabelledImages(ReadsImages, _ImagesOfOneFolder):
    """Images without class folders.

    Symptom: solo-learn takes every entry of the folder for an image, in the order in which the file
    system lists them, which differs between machines.
    """

    def __init__(self, root: Any, transform: Any = None) -> None:
        super().__init__(root, transform)
        self.remember_skipped()

    def file(self, index: int) -> str:
        """Return the file of an image."""
        return str(self.root / self.images[index])


_DATASETS = SimpleNamespace(
    **{name.upper(): _downloading_when_asked(name) for name in named_data.READ_FROM_FILES}
)
_FOR_BOTH: dict[str, Any] = {
    "torchvision": SimpleNamespace(datasets=_DATASETS),
    "STL10": _DATASETS.STL10,
}
FOR_PRETRAINING: dict[str, Any] = {
    **_FOR_BOTH,
    "ImageFolder": FolderWithUnlabelled,
    "CustomDatasetWithoutLabels": UnlabelledImages,
}
"""What replaces names of the module that reads images for pretraining.

Symptoms: solo-learn downloads CIFAR and STL-10 unasked; a folder of unlabelled images is taken for
a class.
"""
FOR_CLASSIFICATION: dict[str, Any] = {**_FOR_BOTH, "ImageFolder": LabelledFolder}
"""What replaces names of the module that reads images for probing and validation."""

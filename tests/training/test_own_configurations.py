"""solo-learn's own configurations with the method's name changed, in its own main_pretrain.py.

And forks of solo-learn: their own methods run as without this package, and where ours cannot be
registered, none of them is, and one sentence says why.
"""

import re
import runpy
import shutil

import pytest
from forked import ForkedPrograms
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from solo.methods import METHODS

from solo_margins.losses import Margins
from solo_margins.registry import METHOD_NAMES
from solo_margins.versions import form, host_folder

PROGRAMS = host_folder().parent
PRETRAIN, RECIPES = PROGRAMS / "main_pretrain.py", PROGRAMS / "scripts" / "pretrain"

pytestmark = pytest.mark.skipif(
    form() != "main" or not PRETRAIN.is_file(), reason="solo-learn's release has no programs"
)

MARGIN_FORMS = {name.rpartition("_")[0]: name for name in METHOD_NAMES}


def recipes():
    """solo-learn's recipes whose method has a margin form, and that form."""
    for folder in ("cifar", "imagenet-100"):
        # Hydra reads no other suffix.
        for file in sorted((RECIPES / folder).glob("*.yaml")):
            method = re.search(r'^method: "(\w+)"', file.read_text(), re.M)[1]
            if method in MARGIN_FORMS:
                yield pytest.param(file, MARGIN_FORMS[method], id=f"{folder}/{file.stem}")


@pytest.fixture(scope="module")
def program():
    """What solo-learn's program has imported."""
    return runpy.run_path(str(PRETRAIN))


def test_all_methods_with_a_margin_form_have_a_recipe():
    assert {recipe.values[1] for recipe in recipes()} == set(METHOD_NAMES)


@pytest.mark.parametrize(("file", "method"), [*recipes()])
def test_a_recipe_of_solo_learn_builds_the_margin_form(program, file, method):
    with initialize_config_dir(str(file.parent), version_base=None):
        recipe = compose(file.name)
        cfg = compose(file.name, [f"method={method}"])
    OmegaConf.set_struct(cfg, False)
    cfg = program["parse_cfg"](cfg)
    model = program["METHODS"][cfg.method](cfg)
    assert isinstance(model, METHODS[recipe.method])
    assert type(model).__module__ == f"solo_margins.methods.{method}"
    assert model.margins == Margins()
    for key, value in recipe.method_kwargs.items():
        assert model.cfg.method_kwargs[key] == value
    assert model.projector[0].out_features == recipe.method_kwargs.proj_hidden_dim
    assert (model.optimizer, model.max_epochs) == (recipe.optimizer.name, recipe.max_epochs)


# Lightning refuses a list of devices on a CPU.
SMALL = [
    *["wandb.enabled=False", "auto_resume.enabled=False", "backbone.name=narrow_resnet10"],
    *["method_kwargs.proj_hidden_dim=16", "method_kwargs.proj_output_dim=8"],
    *["accelerator=cpu", "devices='1'", "strategy=auto", "sync_batchnorm=False", "precision=32"],
    *["optimizer.batch_size=4", "max_epochs=1", "+limit_train_batches=1", "+limit_val_batches=1"],
    *["data.dataset=custom", "data.format=image_folder", "data.num_workers=0"],
]


def test_recipes_of_solo_learn_train_with_margins(start, finish, image_folder, tmp_path):
    """One has the method's name changed in its file, two on the command line."""
    images = [f"data.{part}_path={image_folder / part}" for part in ("train", "val")]
    changed = tmp_path / "scripts"
    shutil.copytree(RECIPES / "cifar", changed)
    recipe = changed / "mocov3.yaml"
    recipe.write_text(recipe.read_text().replace('method: "mocov3"', 'method: "mocov3_margin"'))
    commands = {
        "mocov3_margin": [changed, "mocov3.yaml", "+method_kwargs.margins.positive_scale=5"],
        "simclr_margin": [RECIPES / "cifar", "simclr.yaml", "method=simclr_margin"],
        "byol_curv": [RECIPES / "imagenet-100", "byol.yaml", "method=byol_curv"],
    }
    processes = [
        start(PRETRAIN, "--config-path", folder, "--config-name", name, *words, *SMALL, *images)
        for folder, name, *words in commands.values()
    ]
    for method, process in zip(commands, processes, strict=True):
        run = finish(process)
        assert run.code == 0, run.err
        (folder,) = (tmp_path / "trained_models" / method).iterdir()
        assert len(list(folder.glob("*.ckpt"))) == 1
        args = OmegaConf.load(folder / "args.json")
        assert args.method_kwargs.margins.positive_scale == (5 if method == "mocov3_margin" else 1)


def edit(folder, pattern, text, *places):
    """Replace a pattern in Python files of a fork: everywhere, or in the named ones."""
    number = 0
    for file in [folder / place for place in places] or folder.rglob("*.py"):
        changed, found = re.subn(pattern, text, file.read_text())
        file.write_text(changed)
        number += found
    assert number, f"solo-learn has no {pattern}"


def without_a_module(fork):
    (fork / "solo/utils/checkpointer.py").rename(fork / "solo/utils/saving.py")
    edit(fork, r"\bcheckpointer\b(?! =)", "saving")


def without_the_method(fork):
    (fork / "solo/methods/mocov3.py").unlink()
    edit(fork, r".*(mocov3 import|MoCoV3).*\n", "", "solo/methods/__init__.py")


def with_another_table_of_backbones(fork):
    edit(fork, "_BACKBONES", "_NETWORKS")


def with_another_argument(fork):
    edit(fork, r"__init__\(self, cfg: omegaconf.DictConfig\)", "__init__(self, cfg, logger)")
    edit(
        fork, r"__init__\(\s+self,\s+cfg: omegaconf.DictConfig,\s+\)", "__init__(self, cfg, logger)"
    )
    edit(fork, r"super\(\).__init__\(cfg\)", "super().__init__(cfg, logger)")
    edit(
        fork, r"METHODS\[cfg.method\]\(cfg\)", "METHODS[cfg.method](cfg, None)", "main_pretrain.py"
    )


def with_another_table_of_methods(fork):
    """Renamed, and moved; and a class has another name."""
    (fork / "solo/methods/__init__.py").rename(fork / "solo/methods/table.py")
    table = fork / "solo/methods/table.py"
    imports = re.findall(r"^from solo.*\n", table.read_text(), re.M)
    (fork / "solo/methods/__init__.py").write_text(
        "".join([*imports, "import solo.methods.table\n"])
    )
    edit(fork, r"from solo.methods import METHODS", "from solo.methods.table import METHODS")
    edit(fork, r"\bMETHODS\b", "KNOWN")
    edit(fork, r"\bMoCoV3\b", "MoCoThree")


def with_other_parameters(fork):
    """Of functions that our methods do not call; and modules forget their configuration."""
    edit(fork, r"(top_k: Sequence\[int\] = \(1, 5\))", r"\1, scale=100.0", "solo/utils/metrics.py")
    edit(fork, r"(top_k=\(1, \w+\))", r"\1, scale=100.0", "solo/methods/base.py")
    edit(fork, "def find_checkpoint", "def newest_checkpoint", "solo/utils/auto_resumer.py")
    edit(fork, r"(?m)^        self\.cfg: .*", "        self.settings = cfg", "solo/methods/base.py")


def as_it_is(fork):
    pass


def with_our_name(fork):
    place = "solo/methods/__init__.py"
    edit(fork, r'"simclr": SimCLR,', '"simclr": SimCLR, "mocov3_margin": SimCLR,', place)


# What the warning names where our methods cannot be registered.
MISSING = {
    without_the_method: "No module named 'solo.methods.mocov3'",
    with_another_table_of_backbones: "'_BACKBONES'",
    with_another_table_of_methods: "'METHODS'",
}
WARNING = "UserWarning: solo-margins has not registered its methods: "


def warned(printed):
    """Return what the warning says, of which there is one."""
    (line,) = (line for line in printed.splitlines() if WARNING in line)
    return line.partition(WARNING)[2]


@pytest.fixture(scope="module")
def forked(tmp_path_factory):
    """Runs programs in processes that have imported what solo-learn imports."""
    modules = "lightning.pytorch timm torchmetrics torchvision hydra sklearn.manifold"
    folder = tmp_path_factory.mktemp("forks")
    programs = ForkedPrograms(folder, modules.split(), warnings="default")
    yield programs
    programs.close()


@pytest.fixture
def fork(forked, own, tmp_path):
    """Run a method in main_pretrain.py of a fork, by the name of its edit."""

    def run(change, method, *others):
        place = tmp_path / f"{change.__name__}-{method}"
        shutil.copytree(PROGRAMS / "solo", place / "solo", ignore=shutil.ignore_patterns("*cache*"))
        shutil.copy(PRETRAIN, place)
        change(place)
        # Lightning refuses the list of devices of the configuration on a CPU.
        words = [*own, f"method={method}", "devices='1'", "limit_train_batches=1", *others]
        return forked.run([place / PRETRAIN.name, *words], tmp_path, seconds=240)

    return run


@pytest.mark.parametrize("change", MISSING, ids=lambda change: change.__name__)
def test_a_fork_that_our_methods_do_not_fit_is_told_in_one_sentence(fork, change):
    code, printed = fork(change, "simclr")
    assert code == 0, printed
    assert MISSING[change] in warned(printed)

    code, printed = fork(change, "mocov3_margin")
    assert code == 1
    assert MISSING[change] in warned(printed)
    # solo-learn's own error lists the methods that there are: all of the fork's, none of ours.
    (listed,) = re.findall(r"Choose from dict_keys\((.*)\)", printed)
    assert "'simclr'" in listed
    assert not [name for name in METHOD_NAMES if f"'{name}'" in listed]


@pytest.mark.parametrize(
    "change",
    [without_a_module, with_another_argument, with_other_parameters],
    ids=lambda change: change.__name__,
)
def test_methods_of_a_fork_run_without_a_word_of_ours(fork, change):
    code, printed = fork(change, "simclr")
    assert code == 0, printed
    assert not re.search("solo.margins", printed)


def test_ours_runs_in_a_fork_without_a_module_that_it_does_not_need(fork):
    code, printed = fork(without_a_module, "mocov3_margin")
    assert code == 0, printed


def test_a_method_of_a_fork_with_our_name_runs(fork):
    for method in ("simclr", "mocov3_margin"):
        code, printed = fork(with_our_name, method)
        assert code == 0, printed
        assert "'mocov3_margin' is already taken by solo.methods.simclr.SimCLR" in warned(printed)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("+method_kwargs.margins.angular=7", "method_kwargs.margins.angular must be a number in"),
        ("+method_kwargs.typo=1", "method_kwargs of method=mocov3_margin has no setting 'typo'"),
        ("+variant=pos", "variant=pos is an option of --config-name mocov3_margin.yaml"),
        ("scheduler.name=triangle", "scheduler.name must be one of warmup_cosine, step, none"),
        ("optimizer.batch_size=64", "Nothing was trained: optimizer.batch_size=64 exceeds"),
    ],
)
def test_a_wrong_setting_ends_with_one_sentence(fork, setting, sentence):
    code, printed = fork(as_it_is, "mocov3_margin", setting)
    assert code == 1
    assert "Traceback" not in printed
    assert len([line for line in printed.splitlines() if line.startswith(sentence)]) == 1

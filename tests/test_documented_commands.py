"""Every command and every piece of Python in README and docs does what it is shown for.

A command that no rule of ``documented_runs`` knows fails here: give it one. The quick part reads
settings; ``--full`` runs all commands, shortened, on small images.
"""

import itertools
import re
import runpy

import pytest
from documented import EXAMPLES, PAGES, ROOT, Block, blocks, commands
from documented_runs import Workshop, is_known, reason_not_to_run
from omegaconf import OmegaConf

from solo_margins.recipes import RECIPES

# What has changed names commands without being read for how to run them.
SHOWN = [page for page in (*PAGES, *EXAMPLES) if page.name != "CHANGELOG.md"]
COMMANDS = [command for page in SHOWN for command in commands(page)]
# Parts of files are compared with these in test_examples.py.
PYTHON = [
    block
    for page in PAGES
    for block in blocks(page)
    if block.language == "python" and not block.title
]
EVALUATING = [block for block in PYTHON if "<checkpoint>" in block.text]
HYDRA = ("main_pretrain.py", "main_linear.py")
# Commands with configurations of solo-learn's own are tested in test_own_configurations.py, that of
# a plugin in test_examples.py.
OUR_HYDRA = [
    command
    for command in COMMANDS
    if command.program in HYDRA
    and "--config-path" not in command.arguments
    and "align_uniform.yaml" not in command.arguments
]


def name_of(item):
    return f"{item.page.relative_to(ROOT)}:{item.line}"


def test_every_command_is_known():
    unknown = [str(command) for command in COMMANDS if not is_known(command)]
    assert not unknown, "no rule of tests/support/documented_runs.py says how to run these"


def overrides_of(command):
    """Return the configuration that a command names and its settings, read by Hydra's grammar."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    option, name, *words = command.arguments
    assert option == "--config-name", command
    words = [re.sub(r"<[\w -]+>", "somewhere", word) for word in words if word != "--multirun"]
    return name.removesuffix(".yaml"), OverridesParser.create().parse_overrides(words)


def values_of(override):
    """Return what a setting is given, several in a sweep."""
    if override.is_sweep_override():
        return list(override.sweep_iterator())
    return [override.value()]


def test_settings_exist(composed):
    """One configuration for each method says which settings there are; composing all takes long."""
    configurations = {}
    for command in OUR_HYDRA:
        name, overrides = overrides_of(command)
        cfg = configurations.get(name) or configurations.setdefault(name, composed(name))
        chosen = {"data": ["digits"], "variant": ["baseline"]}
        for override in overrides:
            key = override.key_or_group
            if (ROOT / "configs" / key).is_dir():
                chosen[key] = values_of(override)
                for choice in chosen[key]:
                    file = ROOT / "configs" / key / f"{choice}.yaml"
                    assert file.exists(), f"{command}: there is no {key}={choice}"
            elif not key.startswith("hydra") and not override.is_add():
                assert is_there(cfg, key), f"{command}: there is no setting {key}"
        if name in RECIPES:
            for data, variant in itertools.product(chosen["data"], chosen["variant"]):
                assert variant in RECIPES[name][data], f"{command}: no recipe {data}, {variant}"


def is_there(cfg, key):
    """Tell whether a configuration has a setting, although it may be null or still to be given."""
    parent, _, last = key.rpartition(".")
    parent = OmegaConf.select(cfg, parent) if parent else cfg
    return parent is not None and last in list(parent)


@pytest.mark.full
@pytest.mark.parametrize(
    "command",
    [command for command in OUR_HYDRA if reason_not_to_run(command) is not None],
    ids=name_of,
)
def test_settings_of_what_cannot_run_compose(command, composed):
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

    name, overrides = overrides_of(command)
    for job in BasicSweeper.split_arguments(overrides, max_batch_size=None)[0]:
        assert composed(name, *job).name


@pytest.mark.parametrize("block", [b for b in PYTHON if b not in EVALUATING], ids=name_of)
def test_python_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "outputs/runs.jsonl" in block.text:
        write_results(tmp_path / "outputs" / "runs.jsonl")
    file = tmp_path / "shown.py"
    file.write_text(block.text)
    runpy.run_path(str(file))


def write_results(path):
    from solo_margins import results

    settings = {"method": "mocov3_margin", "data": {"name": "digits"}, "variant": "pos", "seed": 1}
    path.parent.mkdir()
    results.append(path, results.Record("pretrain", settings, "main", figures={"val_acc1": 90.0}))


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    workshop = Workshop(tmp_path_factory.mktemp("documented"))
    yield workshop
    workshop.close()


@pytest.mark.full
@pytest.mark.parametrize(
    "command", [command for command in COMMANDS if reason_not_to_run(command) is None], ids=name_of
)
def test_commands_run(command, workshop):
    words = workshop.words(command)
    assert not re.search(r"<\w[\w -]*>|…", " ".join(words)), "a placeholder that nothing fills"
    workshop.run(words)


@pytest.mark.full
@pytest.mark.parametrize("block", EVALUATING, ids=name_of)
def test_python_with_a_checkpoint_runs(block: Block, workshop):
    file = workshop.folder / "shown.py"
    file.write_text(block.text.replace("<checkpoint>", str(workshop.checkpoint)))
    workshop.run([file])

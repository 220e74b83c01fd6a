"""Every command and every piece of Python in README and docs does what it is shown for.

A command that no rule of ``documented_runs`` knows fails here: give it one. The quick part reads
settings; ``--full`` runs all commands, shortened, on small images.
"""

import itertools
import re
import runpy

import pytest
from documented import EXAMPLES, PAGES, ROOT, Block, blocks, commands
from documented_runs import ONE_ROW, SHORTER, Workshop, is_known, reason_not_to_run
from omegaconf import OmegaConf
from reproduce.experiments import EXPERIMENTS

from solo_margins.recipes import RECIPES

# What has changed names commands without being read for how to run them.
SHOWN = [page for page in (*PAGES, *EXAMPLES) if page.name != "CHANGELOG.md"]
COMMANDS = [command for page in SHOWN for command in commands(page)]
PYTHON = [block for page in PAGES for block in blocks(page) if block.language == "python"]
EVALUATING = [block for block in PYTHON if "<checkpoint>" in block.text]
LANGUAGES = {"bash", "console", "diff", "python", "yaml", "text"}
HYDRA = ("main_pretrain.py", "main_linear.py")
# Commands with configurations of solo-learn's own are tested in test_own_configurations.py.
OUR_HYDRA = [c for c in COMMANDS if c.program in HYDRA and "--config-path" not in c.arguments]


def name_of(item):
    return f"{item.page.relative_to(ROOT)}:{item.line}"


def test_commands_are_found():
    programs = {command.program for command in COMMANDS}
    assert len(COMMANDS) > 60
    assert {"main_pretrain.py", "-m solo_margins.lens", "bash scripts/demo.sh"} <= programs


def test_every_command_is_known():
    unknown = [str(command) for command in COMMANDS if not is_known(command)]
    assert not unknown, "no rule of tests/support/documented_runs.py says how to run these"


def test_new_commands_are_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "Run `python scripts/new.py --fast`, or\n`scripts/other.py x`, not `scripts/other.py`.\n\n"
        "```bash\n# first\nVARIABLE=1 python \\\n    -m new.program  # quick\n"
        "cd <there> && python go.py\n```\n"
    )
    found = list(commands(page))
    assert [command.program for command in found] == [
        *("-m new.program", "go.py", "scripts/new.py", "scripts/other.py"),
    ]
    assert [command.line for command in found] == [6, 8, 1, 2]
    assert [command.folder for command in found] == ["", "<there>", "", ""]
    assert not any(is_known(command) for command in found)


def test_every_rule_is_used():
    shown = {command.program for command in COMMANDS}
    assert sorted(set(SHORTER) - shown) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_is_where_it_is_looked_for(page):
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{name_of(block)}: say which language this is"
        if block.language in ("text", "yaml"):
            assert not re.search(r"^\$? *(python|bash|pip) ", block.text, re.M), name_of(block)
    indented = re.findall(r"^ {4,}(?:python|bash|pip) .*$", page.read_text(), re.M)
    fenced = {line.strip() for block in blocks(page) for line in block.text.splitlines()}
    assert not [line for line in indented if line.strip() not in fenced], "put it between ```"


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


def test_options_exist():
    for command in COMMANDS:
        if command.program.startswith(("scripts/", "examples/")):
            program = ROOT / command.program
            source = (program / "command.py" if program.is_dir() else program).read_text()
            if command.program.startswith("examples/lightly"):
                source += (ROOT / "examples" / "digits.py").read_text()
            for option in re.findall(r"(?<= )--[\w-]+", command.text):
                assert f'"{option}"' in source, f"{command} has no {option}"


def test_rows_that_are_run_for_all_exist():
    for name, row in ONE_ROW.items():
        assert any(entry.row.startswith(row) for entry in EXPERIMENTS[name].entries), (name, row)


def test_settings_of_curves_are_read(tmp_path, monkeypatch):
    from solo_margins.lens import curve_figure, report

    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs" / "images").mkdir(parents=True)
    of_the_lens = [c.arguments for c in COMMANDS if c.program == "-m solo_margins.lens"]
    for kind, *rest in of_the_lens:
        if kind == "curves":
            assert curve_figure.parse(rest).margins is not None
        elif kind == "report":
            assert len(report.parse(rest)[0]) >= 1
        else:
            assert (kind, len(rest)) == ("advise", 1)


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
@pytest.mark.parametrize("command", COMMANDS, ids=name_of)
def test_commands_run(command, workshop):
    reason = reason_not_to_run(command)
    if reason is not None:
        pytest.skip(reason)
    words = workshop.words(command)
    assert not re.search(r"<\w[\w -]*>|…", " ".join(words)), "a placeholder that nothing fills"
    workshop.run(words)


@pytest.mark.full
@pytest.mark.parametrize("block", EVALUATING, ids=name_of)
def test_python_with_a_checkpoint_runs(block: Block, workshop):
    file = workshop.folder / "shown.py"
    file.write_text(block.text.replace("<checkpoint>", str(workshop.checkpoint)))
    workshop.run([file])

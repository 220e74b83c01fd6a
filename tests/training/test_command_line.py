"""The commands that a user types: their help, and mistakes that Hydra would answer with little."""

import json
from pathlib import Path

import pytest
import torch
from forked import ForkedPrograms
from omegaconf import OmegaConf

from solo_margins.backbones import build_backbone
from solo_margins.command_line import check

ROOT = Path(__file__).resolve().parents[2]
OURS = ["--config-name", "mocov3_margin.yaml"]


@pytest.fixture(scope="module")
def forked(tmp_path_factory):
    programs = ForkedPrograms(tmp_path_factory.mktemp("forked"))
    yield programs
    programs.close()


@pytest.mark.parametrize("option", ["--help", "-h"])
@pytest.mark.parametrize("name", ["pretrain", "linear", "knn", "probe", "export", "lens"])
def test_a_command_prints_its_help_on_one_screen(forked, tmp_path, name, option):
    code, printed = forked.run(["-m", f"solo_margins.{name}", option], tmp_path)
    assert code == 0, printed
    assert f"solo_margins.{name}" in printed or f"main_{name}.py" in printed
    assert 5 < len(printed.splitlines()) <= 40
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("program", [[ROOT / "main_pretrain.py"], ["-m", "solo_margins.pretrain"]])
def test_our_configurations_are_found_from_anywhere(forked, tmp_path, program):
    code, printed = forked.run([*program, *OURS, "--cfg", "job"], tmp_path)
    assert code == 0, printed
    assert "method: mocov3_margin" in printed


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "--config-name"),
        (["--config-name", "simclr.yaml"], "simclr_margin.yaml"),
        ([*OURS, "data.train_path=/tmp/Bücher"], "'/tmp/Bücher'"),
        ([*OURS, "+max_epoch=3"], "max_epochs"),
        ([*OURS, "devices=0"], "devices"),
        ([*OURS, "method=simclr"], "simclr_margin"),
        ([*OURS, "variant=nonsense"], "baseline, margins"),
        ([*OURS, "data=nonsense"], "cifar10, cifar100, digits"),
        ([*OURS, "method_kwargs.margins.angulr=0.1"], "angular"),
        ([*OURS, "accelerator=gpu"], "gpu"),
        ([*OURS, "resume_from_checkpoint=nowhere.ckpt"], "nowhere.ckpt"),
        ([*OURS, "data.train_path=/nowhere", "data=folder"], "data.train_path=/nowhere"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else None,
)
def test_a_mistake_ends_a_program_with_one_sentence(forked, tmp_path, arguments, named):
    if "accelerator=gpu" in arguments and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    code, said = forked.run([ROOT / "main_pretrain.py", *arguments], tmp_path)
    assert code == 1, said
    assert "Traceback" not in said
    # Hydra says besides how to see a stack trace.
    lines = [line for line in said.splitlines() if line and "HYDRA_FULL_ERROR" not in line]
    assert named in lines[-1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--config-name", "simclr.yaml"],
        ["--config-name=simclr"],
        ["-cn", "simclr_margin.yml", "max_epochs=1"],
        ["--config-path", "/nowhere", "--config-name", "simclr.yaml"],
    ],
)
def test_a_missing_configuration_lists_what_there_is(arguments):
    with pytest.raises(ValueError) as caught:
        check(arguments)
    for name in ("mean simclr_margin.yaml", "byol_curv.yaml", "linear.yaml"):
        assert name in str(caught.value)


def test_configurations_and_options_of_ones_own_are_found_and_listed(tmp_path):
    (tmp_path / "mine.yaml").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "moons.yaml").touch()
    for option in ("--config-path", "--config-dir"):
        check([option, str(tmp_path), "--config-name", "mine", "data=moons"])
        check([option, str(tmp_path), "--config-name", "linear.yaml"])
        with pytest.raises(ValueError, match=r"mean mine\.yaml"):
            check([option, str(tmp_path), "--config-name", "mina"])
    with pytest.raises(ValueError, match="--config-dir"):
        check(["--config-path", "conf", "--config-name", "mine"])


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (["data=mnist,cifar10"], "mnist"),
        (["backbone=resnet19"], "resnet18"),
        (["+optimizer=adm"], "adam"),
        (["margins.angle=0.5"], "angular"),
        (["method_kwargs.margins.scalings=focal"], "scaling"),
        (["data.train_path=/tmp/my", "images"], r"\"data\.train_path='/tmp/my images'\""),
        (["seed=1", "data.train_path=/a (b)"], r"\"data\.train_path='/a \(b\)'\""),
        (["name=it's"], r"\"name='it\\'s'\""),
    ],
)
def test_what_hydra_could_not_read_is_explained(wrong, named):
    with pytest.raises(ValueError, match=named):
        check([*OURS, *wrong])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        [*OURS, "--cfg", "job", "--resolve"],
        ["--config-name", "mocov3_margin", "-m", "seed=1,2", "variant=baseline,pos", "data=stl10"],
        [*OURS, "+backbone.kwargs={width: 8}", "~momentum", "method_kwargs.margins.angular=0.1"],
        [*OURS, "margins.angular=0.1", "margins.scaling=focal"],
        [*OURS, "method_kwargs.margins.scaling={_target_: a.b}", "+margins.scaling._target_=a.b"],
        [*OURS, "data.train_path=/a folder/with spaces"],
        [*OURS, "data.train_path='/tmp/Bücher'"],
        [*OURS, "hydra.searchpath=[file:///x]", "data=mine"],
        ["--shell-completion", "install=bash", "Bücher"],
    ],
)
def test_good_command_lines_pass(arguments):
    check(arguments)


def test_linear_probing_of_an_older_checkpoint(forked, written, linear_config, tmp_path):
    cfg = OmegaConf.load(tmp_path / "conf" / "own.yaml")
    for key, value in linear_config("x", "checkpoint.dir=runs", "max_epochs=1").items():
        cfg[key] = value
    del cfg["augmentations"]
    OmegaConf.save(cfg, tmp_path / "conf" / "own.yaml")
    described = {"backbone": {"name": "resnet18"}, "data": {"dataset": "custom"}, "method": "byol"}
    network = build_backbone(OmegaConf.create(described))
    state = {f"encoder.{key}": value for key, value in network.state_dict().items()}
    torch.save({"state_dict": state}, tmp_path / "old.ckpt")
    args = {**described, "augmentations": [{"crop_size": 16}]}
    (tmp_path / "args.json").write_text(json.dumps(args))
    command = [ROOT / "main_linear.py", *written, "pretrained_feature_extractor=old.ckpt"]
    code, said = forked.run(command, tmp_path)
    assert code == 0, said
    assert "encoder.*" in said
    assert list(tmp_path.glob("runs/linear/*/*.ckpt"))

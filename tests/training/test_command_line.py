"""Mistakes on a command line that Hydra itself would answer with little."""

from pathlib import Path

import pytest

from solo_margins.command_line import check

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "main_pretrain.py"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--config-name", "simclr.yaml"],
        ["--config-name=simclr"],
        ["-cn", "simclr_margin.yml", "max_epochs=1"],
        ["--config-path", "nowhere", "--config-name", "simclr.yaml"],
    ],
)
def test_a_missing_configuration_lists_what_there_is(arguments):
    with pytest.raises(ValueError) as caught:
        check(arguments, PROGRAM)
    assert "did you mean simclr_margin.yaml?" in str(caught.value)
    for name in ("byol_curv.yaml", "linear.yaml"):
        assert name in str(caught.value)


def test_configurations_of_ones_own_are_found_and_listed(tmp_path):
    (tmp_path / "mine.yaml").touch()
    for option in ("--config-path", "--config-dir"):
        check([option, str(tmp_path), "--config-name", "mine", "seed=1"], PROGRAM)
        check([option, str(tmp_path), "--config-name", "linear.yaml"], PROGRAM)
        with pytest.raises(ValueError, match=r"did you mean mine\.yaml"):
            check([option, str(tmp_path), "--config-name", "mina"], PROGRAM)


@pytest.mark.parametrize(
    ("arguments", "quoted"),
    [
        (["data.train_path=/tmp/Bücher"], "\"data.train_path='/tmp/Bücher'\""),
        (["data.train_path=/tmp/my", "images"], "\"data.train_path='/tmp/my images'\""),
        (["seed=1", "data.train_path=/a (b)"], "\"data.train_path='/a (b)'\""),
        (["name=it's"], "\"name='it\\'s'\""),
    ],
)
def test_a_value_that_needs_quotes_is_shown_with_them(arguments, quoted):
    with pytest.raises(ValueError) as caught:
        check(["--config-name", "mocov3_margin.yaml", *arguments], PROGRAM)
    assert quoted in str(caught.value)
    check([quoted.strip('"')], PROGRAM)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--help"],
        ["--config-name", "mocov3_margin.yaml", "--cfg", "job", "--resolve"],
        ["--config-name", "mocov3_margin", "-m", "seed=1,2", "variant=baseline,pos"],
        ["--config-name", "mocov3_margin", "+backbone.kwargs={width: 8}", "~momentum"],
        ["--config-name", "mocov3_margin", "data.train_path=/a folder/with spaces"],
        ["--shell-completion", "install=bash", "Bücher"],
    ],
)
def test_good_command_lines_pass(arguments):
    check(arguments, PROGRAM)


@pytest.mark.parametrize("program", ["main_pretrain.py", "main_linear.py"])
def test_the_programs_end_with_one_sentence(start, finish, program):
    arguments = [
        ("--config-name", "simclr.yaml"),
        ("--config-name", "mocov3_margin.yaml", "data.train_path=/tmp/Bücher"),
    ]
    for process in [start(ROOT / program, *of_one) for of_one in arguments]:
        run = finish(process)
        assert run.code == 1
        assert run.err.startswith("Error: ")
        assert len(run.err.splitlines()) == 1

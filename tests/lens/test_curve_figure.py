"""The figure of curves as a command: its settings, and what it draws."""

import math
import sys

import pytest
import torch
from own_scalings import times

from solo_margins.cli import run_cli
from solo_margins.lens.__main__ import COMMANDS, main
from solo_margins.losses import Margins

figure = pytest.importorskip("solo_margins.lens.curve_figure", reason="matplotlib is missing")
parse = figure.parse


@pytest.mark.parametrize("word", ["inf", ".inf", "infinity"])
def test_settings_are_read(word):
    margins = ["margins.angular=-0.25", f"margins.curvature={word}", "margins.attenuation_type=II"]
    found = parse([*margins, "temperature=0.1", "q=1", "degrees=0", "output=a/b.SVG"])
    assert found.margins == Margins(angular=-0.25, attenuation_type="II")
    assert (found.temperature, found.q, found.degrees) == (0.1, 1.0, 0.0)
    assert str(found.output) == "a/b.SVG"


def test_a_scaling_of_ones_own_is_drawn(tmp_path):
    pytest.importorskip("hydra")
    scaling = ["margins.scaling._target_=own_scalings.times", "margins.scaling.factor=3"]
    read = parse([*scaling, "margins.positive_scale=2"]).margins
    angle, q = torch.tensor([0.25, 1.0]), torch.tensor([0.75, 0.5])
    assert read.scaling(angle, q).equal(times(angle, q, factor=3))
    assert read.positive_scale == 2.0
    main(["curves", *scaling, f"output={tmp_path / 'own.svg'}"])
    assert "own_scalings.times" in (tmp_path / "own.svg").read_text()


@pytest.mark.parametrize(
    ("argument", "named"),
    [
        ("margins.scale=2", r"margins\.scale"),
        ("angular=2", "angular"),
        ("margins.angular", r"margins\.angular"),
        ("margins.angular=x", r"^margins\.angular must be"),
        ("margins.angular=-2", r"^margins\.angular must be"),
        ("margins.attenuation=nan", r"^margins\.attenuation must be"),
        ("margins.attenuation_type=3", r"^margins\.attenuation_type must be"),
        ("margins.scaling=unknown", r"^margins\.scaling must be"),
        ("margins.scaling._target_=no.where", r"^margins\.scaling\._target_"),
        ("margins.scaling._target_=math.floor", r"^margins\.scaling"),
        ("temperature=0", r"^temperature must be"),
        ("q=1.5", r"^q must be"),
        ("degrees=-1", r"^degrees must be"),
        ("degrees=", r"^degrees must be"),
        ("output=a.jpg", r"^output must be"),
        ("output=", r"^output must be"),
    ],
)
def test_mistakes_are_refused(argument, named):
    with pytest.raises(ValueError, match=named):
        parse([argument])


def test_a_family_holds_the_chosen_curve():
    margins, angle = Margins(curvature=3.3), torch.tensor(1.0)
    drawn = figure.family(
        margins, "curvature", figure.CURVATURES, lambda each: each.angle_weight(angle)
    )
    assert len(drawn) == len(figure.CURVATURES) + 1
    [chosen] = [value for value, look in drawn if "chosen" in look["label"]]
    assert chosen == margins.angle_weight(angle)


@pytest.mark.parametrize("angular", [-math.pi / 2, math.pi])
def test_the_ends_of_the_range_are_drawn(tmp_path, angular):
    """At q = 1 there is no gradient without margins, and so no ratio."""
    ends = ["q=1", "degrees=0", "margins.attenuation=1", f"margins.angular={angular}"]
    main(["curves", *ends, f"output={tmp_path / 'ends.svg'}"])
    assert "no gradient to multiply" in (tmp_path / "ends.svg").read_text()


@pytest.mark.parametrize("arguments", [[], ["draw"]])
def test_the_program_says_which_commands_it_has(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        run_cli(main, arguments)
    assert ended.value.code == 1
    [sentence] = capsys.readouterr().err.splitlines()
    assert all(command in sentence for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command, capsys):
    main([command, "--help"])
    assert f"python -m solo_margins.lens {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "module", "package"),
    [("curves", "curve_figure", "matplotlib"), ("report", "report", "plotly")],
)
def test_a_missing_package_is_named(monkeypatch, command, module, package):
    monkeypatch.delitem(sys.modules, f"solo_margins.lens.{module}", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=rf"{package}.* not installed"):
        main([command])

"""The figure of curves as a command: its settings, and what it draws."""

import sys

import pytest
import torch

from solo_margins.cli import run_cli
from solo_margins.lens.__main__ import COMMANDS, main
from solo_margins.losses import Margins

figure = pytest.importorskip("solo_margins.lens.curve_figure", reason="matplotlib is missing")
parse = figure.parse


@pytest.mark.parametrize("word", ["inf", ".inf", "infinity"])
def test_settings_are_read(word):
    margins = ["margins.angular=.25", f"margins.curvature={word}", "margins.attenuation_type=II"]
    found = parse([*margins, "temperature=0.1", "q=1", "degrees=0", "output=a/b.SVG"])
    assert found.margins == Margins(angular=0.25, attenuation_type="II")
    assert (found.temperature, found.q, found.degrees) == (0.1, 1.0, 0.0)
    assert str(found.output) == "a/b.SVG"


@pytest.mark.parametrize(
    ("argument", "named"),
    [
        ("margins.scale=2", r"margins\.scale"),
        ("angular=2", "angular"),
        ("margins.angular", r"margins\.angular"),
        ("margins.angular=x", r"^margins\.angular must be"),
        ("margins.attenuation=nan", r"^margins\.attenuation must be"),
        ("margins.subtractive=inf", r"^margins\.subtractive must be"),
        ("margins.attenuation_type=3", r"^margins\.attenuation_type must be"),
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


def test_the_ends_of_the_range_are_drawn(tmp_path):
    """At q = 1 there is no gradient without margins, and so no ratio."""
    ends = ["q=1", "degrees=0", "margins.attenuation=1", "margins.angular=3.141592653589793"]
    main(["curves", *ends, f"output={tmp_path / 'ends.svg'}"])
    assert "no gradient to multiply" in (tmp_path / "ends.svg").read_text()


@pytest.mark.parametrize("arguments", [[], ["draw"]])
def test_the_program_says_which_commands_it_has(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        run_cli(main, arguments)
    assert ended.value.code == 1
    [sentence] = capsys.readouterr().err.splitlines()
    assert all(command in sentence for command in COMMANDS)


@pytest.mark.parametrize("option", ["--help", "-h"])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command, option, capsys):
    main([command, option])
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

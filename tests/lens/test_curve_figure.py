"""The figure of curves as a command: its settings, and what it says."""

import math
import sys

import pytest
import torch

from solo_margins.cli import run_cli
from solo_margins.lens import curves
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
    ("argument", "message"),
    [
        ("margins.scale=2", r"'margins.scale=2' is not key=value .*margins.angular, .*output\."),
        ("angular=2", r"'angular=2' is not key=value"),
        ("margins.angular", r"'margins.angular' is not key=value"),
        ("margins.angular=x", r"^margins\.angular must be a number in \[0, π\], got 'x'"),
        ("margins.attenuation=nan", r"^margins\.attenuation must be .* got 'nan'"),
        ("margins.subtractive=inf", r"^margins\.subtractive must be a number >= 0, got inf"),
        ("margins.attenuation_type=3", r"^margins\.attenuation_type must be one of I, II, got 3"),
        ("temperature=0", r"^temperature must be a number > 0, got 0"),
        ("q=1.5", r"^q must be a number in \[0, 1\], got 1\.5"),
        ("degrees=-1", r"^degrees must be a number in \[0, 180\], got -1"),
        ("degrees=", r"^degrees must be a number in \[0, 180\], got "),
        ("output=a.jpg", r"^output must be a file that ends with \.png, \.pdf or \.svg"),
        ("output=", r"^output must be a file that ends with"),
    ],
)
def test_mistakes_are_refused(argument, message):
    with pytest.raises(ValueError, match=message) as caught:
        parse([argument])
    assert "\n" not in str(caught.value)


def test_families_hold_the_chosen_one():
    margins = Margins(curvature=3.3, attenuation=0.4, positive_scale=2.0)
    angle = curves.ANGLES
    weights = figure.family(
        margins, "curvature", figure.CURVATURES, lambda each: each.angle_weight(angle)
    )
    labels = [look["label"] for _, look in weights]
    assert len(labels) == len(figure.CURVATURES) + 1
    assert labels[3:] == [
        *("c = 1", "c = 1.5", "c = 2.5", "c = 3.3 (chosen)", "c = 5", "c = ∞, off")
    ]
    torch.testing.assert_close(weights[3][0], 2 * (1 - angle / math.pi))
    q = curves.PROBABILITIES[:-1]
    factors = figure.family(
        margins, "attenuation", (0.0, 1.0), lambda each: each.attenuation_factor(1 - q)
    )
    labels = [look["label"] for _, look in factors]
    assert labels == ["α = 0, off", "α = 0.4 (chosen)", "α = 1"]
    torch.testing.assert_close(factors[1][0], 1 / (1 - 0.4 * q))


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
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("Choose from: curves, report, advise.")
    assert all(f"Unknown command {argument!r}" in line for argument in arguments)


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_every_command_explains_itself(option, capsys):
    main([option])
    everything = capsys.readouterr().out
    for command in COMMANDS:
        main([command, option])
        part = capsys.readouterr().out
        assert part.startswith(f"python -m solo_margins.lens {command}")
        assert part in everything
        assert len([line for line in part.splitlines() if "-m solo_margins.lens" in line]) == 1
        if command == "curves":
            assert all(key.removeprefix("margins.") in part for key in figure.KEYS)


@pytest.mark.parametrize(
    ("command", "module", "package"),
    [("curves", "curve_figure", "matplotlib"), ("report", "report", "plotly")],
)
def test_a_missing_package_is_named(monkeypatch, command, module, package):
    monkeypatch.delitem(sys.modules, f"solo_margins.lens.{module}", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=rf"{package}.* not installed") as refused:
        main([command])
    # As in the other messages: the package is not on PyPI.
    assert '`pip install ".[lens]"` in the folder of solo-margins' in str(refused.value)

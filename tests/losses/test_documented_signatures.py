"""docs/api/losses.md has the signature of every loss, for who reads it without the site."""

import inspect
from pathlib import Path

from solo_margins import losses

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api" / "losses.md"


def signature(name):
    """Return name and arguments as the page has them: with defaults, without types."""
    parameters = inspect.signature(getattr(losses, name)).parameters.values()
    shown = [
        parameter.name
        if parameter.default is parameter.empty
        else f"{parameter.name}={parameter.default!r}".replace(repr(losses.Margins()), "Margins()")
        for parameter in parameters
    ]
    return f"{name}({', '.join(shown)})"


def test_every_signature_is_on_the_page():
    block = PAGE.read_text().partition("## Signatures")[2].split("```")[1]
    listed = " ".join(block.removeprefix("text").split())
    assert sorted(listed.replace(") ", ")\n").splitlines()) == sorted(
        map(signature, losses.__all__)
    )

"""docs/api/README.md has the signature of every documented object, for who reads GitHub."""

import inspect
import runpy

import pytest
from documented import ROOT

from solo_margins import losses


@pytest.fixture(scope="module")
def api_page():
    return runpy.run_path(str(ROOT / "scripts" / "api_page.py"))


def test_the_page_is_up_to_date(api_page):
    written = (ROOT / "docs" / "api" / "README.md").read_text()
    assert written == api_page["page"](), "run python scripts/api_page.py"


def test_every_loss_is_documented(api_page):
    page = (ROOT / "docs" / "api" / "losses.md").read_text()
    documented = [name.rpartition(".")[2] for name in api_page["documented"](page)]
    assert sorted(documented) == sorted(losses.__all__)


@pytest.mark.parametrize("name", losses.__all__)
def test_signatures_are_those_of_the_code(api_page, name):
    """The page is written without importing anything; Python itself says the same."""
    definition = api_page["found"](f"solo_margins.losses.{name}")[2]
    shown = [argument.partition("=")[0] for argument in api_page["arguments"](definition)]
    assert shown == list(inspect.signature(getattr(losses, name)).parameters)

"""Puts repairs of solo-learn into a checkout: the modules that the plugin applies, as a package."""

from __future__ import annotations

import re
from collections.abc import Sequence

from solo_margins.host.repairs import NAMES, load

from upstream.checkout import Checkout, UpstreamError
from upstream.methods import put_python, with_entry
from upstream.source import PACKAGE, REPAIRS, exported, file_of, needed_modules, place_of, template

TESTS = PACKAGE.parent / "tests" / "host" / "repairs"
FILE = "solo/repairs/__init__.py"
APPLIED = "from solo import repairs\n\nrepairs.apply_all()\n"


def add_repairs(checkout: Checkout, names: Sequence[str]) -> None:
    """Add repairs, each with its test.

    Raises:
        UpstreamError: a repair is unknown, or its test is not there.
    """
    for name in names:
        if name not in NAMES:
            raise UpstreamError(
                f"--repair {name} is not one of ours, which are {', '.join(NAMES)}."
            )
    if not names:
        return
    modules = [f"{REPAIRS}.{name}" for name in names]
    for module in needed_modules([*modules, "solo_margins.host.changes"]):
        put_python(checkout, file_of(place_of(module)), exported(module, {}))
    if not checkout.has(FILE):
        put_python(checkout, FILE, template("repairs_package"))
    for repair in load(tuple(names)):
        checkout.put(FILE, with_entry(checkout.read(FILE), "NAMES = [", f'"{repair.name}"'))
        test = TESTS / f"test_{repair.name}.py"
        if not test.is_file():
            raise UpstreamError(
                f"The test of {repair.name} is missing: export from a clone of this project, which "
                "has tests/host/repairs."
            )
        area = repair.changes[0].module.split(".")[0]
        put_python(checkout, f"tests/{area}/test_{repair.name}.py", test.read_text())
    top = checkout.read("solo/__init__.py")
    if APPLIED not in top:
        # After solo-learn's own imports: repairs change what is there.
        checkout.put("solo/__init__.py", re.sub(r"\n*\Z", "\n\n", top) + APPLIED)

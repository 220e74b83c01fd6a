"""Write our methods into a checkout of solo-learn, as a contribution to its repository.

    python scripts/export_upstream.py <checkout> --diff
    python scripts/export_upstream.py <checkout> --method mocov3_margin simclr_margin
    python scripts/export_upstream.py <checkout> --repair online_knn

Losses, methods, registry entries, recipes and tests are produced from the sources of this project,
and so are repairs of solo-learn itself. Running it twice changes nothing.
"""

from __future__ import annotations

import argparse
import sys

from solo_margins.host.repairs import NAMES
from upstream.checkout import Checkout, UpstreamError
from upstream.methods import add_methods
from upstream.repairs import add_repairs

from solo_margins.registry import OUR_METHODS


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("checkout", help="folder of a checkout of solo-learn's repository")
    parser.add_argument(
        "--method",
        nargs="+",
        metavar="NAME",
        help=f"methods: {', '.join(OUR_METHODS)}; all of them if nothing is named",
    )
    parser.add_argument(
        "--repair",
        nargs="+",
        metavar="NAME",
        help=f"repairs: {', '.join(NAMES)}; none if none is named",
    )
    parser.add_argument("--diff", action="store_true", help="show the changes, write nothing")
    parser.add_argument(
        "--dirty", action="store_true", help="write although the checkout has uncommitted changes"
    )
    given = parser.parse_args(arguments)
    try:
        checkout = Checkout(given.checkout)
        methods = given.method or ([] if given.repair else list(OUR_METHODS))
        add_methods(checkout, methods)
        add_repairs(checkout, given.repair or [])
        if given.diff:
            sys.stdout.write(checkout.diff())
            return 0
        return _write(checkout, given.dirty)
    except UpstreamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _write(checkout: Checkout, dirty: bool) -> int:
    if not checkout.changes():
        print(f"{checkout.folder} has all of it already: nothing to write.")
        return 0
    uncommitted = [] if dirty else checkout.uncommitted()
    if uncommitted:
        raise UpstreamError(
            f"{checkout.folder} has uncommitted changes, for example in {uncommitted[0]}: commit "
            "or stash them, or add --dirty."
        )
    for path in checkout.write():
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())

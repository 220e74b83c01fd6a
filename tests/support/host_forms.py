"""Which form of solo-learn a test is for."""

import pytest

from solo_margins import host

only_on_the_release = pytest.mark.skipif(
    host.FORM == "main", reason="tests/host/repairs tests the same on the repository's form"
)

"""The repairs of solo-learn's repository, each tested in a file that knows solo-learn alone.

No file here imports anything of ours, and each stands alone: it can be put into solo-learn's own
suite as it is, where it fails without the repair whose name it has.
"""

from solo_margins import host

if host.FORM == "main":
    host.load()
else:
    # The release of the package registry is adapted, not repaired.
    collect_ignore_glob = ["test_*.py"]

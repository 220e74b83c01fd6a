"""A copy of solo-learn's checkout under git, where the tests run against one."""

import shutil
import subprocess

import pytest

from solo_margins.versions import form, host_folder


def git(folder, *arguments):
    """Run git in a folder."""
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="session")
def original():
    """Return the folder of the checkout that the tests run against."""
    if form() != "main" or not (host_folder().parent / "main_pretrain.py").is_file():
        pytest.skip("this needs a checkout of solo-learn's repository: set SOLO_LEARN_SRC")
    return host_folder().parent


@pytest.fixture
def checkout(original, tmp_path):
    """Return a committed copy of the checkout."""
    copy = tmp_path / "checkout"
    left_out = shutil.ignore_patterns(".git", "__pycache__", "lightning_logs", "trained_models")
    shutil.copytree(original, copy, ignore=left_out)
    git(copy, "init", "--quiet")
    git(copy, "add", "--all", "--force")
    git(copy, "commit", "--quiet", "--message", "as it was")
    return copy


@pytest.fixture
def status(checkout):
    """Tell which files of the copy differ from its commit."""
    return lambda: git(checkout, "status", "--porcelain", "--untracked-files=all").splitlines()


@pytest.fixture
def undo_sources(checkout):
    """Take back what was done to the package, not to its tests."""

    def run():
        git(checkout, "checkout", "--", "solo")
        git(checkout, "clean", "--force", "-d", "-x", "--quiet", "--", "solo")

    return run

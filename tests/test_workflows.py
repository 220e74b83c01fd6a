"""The workflows of .github/ name what is in the repository, and may do no more than they need."""

import configparser
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
READ = {"contents": "read"}


def read(name):
    return yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())


def steps(workflow):
    return [step for job in workflow["jobs"].values() for step in job.get("steps", ())]


def commands(workflow):
    return "\n".join(step.get("run", "") for step in steps(workflow))


def setup_cfg():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def test_workflows_are_found():
    assert [path.name for path in WORKFLOWS] == ["release.yaml", "tests.yaml"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_jobs_end_and_may_only_read(path):
    workflow = read(path.name)
    assert workflow["permissions"] == READ
    assert workflow["concurrency"]["group"]
    for name, job in workflow["jobs"].items():
        assert "uses" in job or job["timeout-minutes"] <= 60, name
        # Publishing has its own, and stores no password.
        assert job.get("permissions", READ) == READ or "environment" in job, name
    for step in steps(workflow):
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@(release/)?v\d+", step["uses"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_files_and_extras_exist(path):
    workflow = read(path.name)
    text = commands(workflow)
    named = re.findall(
        r"\b(?:requirements[\w-]*\.\w+|CHANGELOG\.md|(?:tests|scripts)/[\w/.]+)", text
    )
    named += [job["uses"] for job in workflow["jobs"].values() if "uses" in job]
    assert named
    assert not [file for file in named if not (ROOT / file).exists()]
    extras = {extra for group in re.findall(r'"\.\[(.*?)\]"', text) for extra in group.split(",")}
    assert extras <= set(setup_cfg()["options.extras_require"])


def test_every_python_of_the_classifiers_is_tested():
    tested = read("tests.yaml")["jobs"]["suite"]["strategy"]["matrix"]["python"]
    classifiers = setup_cfg()["metadata"]["classifiers"]
    assert tested == re.findall(r"Python :: (3\.\d+)$", classifiers, re.MULTILINE)


def test_tools_have_the_versions_of_the_scripts():
    pin = re.compile(r"\b(pip|setuptools|wheel|build)==([\d.]+)")
    known = dict(pin.findall((ROOT / "scripts" / "environment.sh").read_text()))
    known |= dict(pin.findall((ROOT / "requirements.lock").read_text()))
    used = [found for path in WORKFLOWS for found in pin.findall(commands(read(path.name)))]
    assert {name for name, _ in used} == {"pip", "setuptools", "wheel", "build"}
    assert all(known[name] == version for name, version in used)

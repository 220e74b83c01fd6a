"""The workflows of .github/ name what is in the repository, and may do no more than they need."""

import configparser
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = {
    path.name: yaml.safe_load(path.read_text())
    for path in (ROOT / ".github" / "workflows").glob("*.yaml")
}
READ = {"contents": "read"}


def commands(workflow):
    steps = [step for job in workflow["jobs"].values() for step in job.get("steps", ())]
    return "\n".join(step.get("run", "") for step in steps)


def setup_cfg():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


@pytest.mark.parametrize("name", WORKFLOWS)
def test_jobs_end_and_may_only_read(name):
    workflow = WORKFLOWS[name]
    assert workflow["permissions"] == READ
    for job in workflow["jobs"].values():
        assert "uses" in job or job["timeout-minutes"] <= 60
        # Publishing has its own, and stores no password.
        assert job.get("permissions", READ) == READ or "environment" in job


@pytest.mark.parametrize("name", WORKFLOWS)
def test_files_and_extras_exist(name):
    text = commands(WORKFLOWS[name])
    files = re.findall(r"\b(?:requirements[\w-]*\.\w+|(?:tests|scripts)/[\w/.]+)", text)
    assert not [file for file in files if not (ROOT / file).exists()]
    extras = {extra for group in re.findall(r'"\.\[(.*?)\]"', text) for extra in group.split(",")}
    assert extras <= set(setup_cfg()["options.extras_require"])


def test_every_python_of_the_classifiers_is_tested():
    tested = WORKFLOWS["tests.yaml"]["jobs"]["suite"]["strategy"]["matrix"]["python"]
    classifiers = setup_cfg()["metadata"]["classifiers"]
    assert tested == re.findall(r"Python :: (3\.\d+)$", classifiers, re.MULTILINE)

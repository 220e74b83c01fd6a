"""The report as a file: what it holds, what is escaped, and what is refused."""

import re

import pytest
from lens_runs import write_lens, write_run
from report_pages import Page, report

from solo_margins.lens import records
from solo_margins.lens.__main__ import main

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A report of two runs with hostile names and settings, and of one that is not there."""
    root = tmp_path_factory.mktemp("runs")
    one = write_run(
        root / HOSTILE,
        name=HOSTILE,
        variant="</script><img src=x onerror=alert(1)>",
        **{HOSTILE: "<b>&amp;", "seed": "'\"", "only_here": True},
    )
    path = write_lens(one, [], versions={HOSTILE: "\u2028</script>"})
    records.add(path, "warning", {"step": 1, "name": "x", "text": HOSTILE})
    two = write_run(root / "a" / HOSTILE, looks=3)
    return report(root, one, two, root / "nowhere <img src=y>")


def test_warnings_costs_and_missing_runs_are_in_the_page(text):
    words = Page(text).words
    for part in ("11 % of the positives", "3 to step 1000", "512 rows", "is not a run folder"):
        assert part in words


def test_only_differing_settings_are_in_the_open(text):
    section = text[text.index('<section id="configuration">') :]
    in_open, folded = section.split("<details>")[:2]
    assert all(word in in_open for word in ("seed", "only_here", "absent"))
    assert "optimizer.lr" not in in_open
    assert "optimizer.lr" in folded.split("</details>")[0]


def test_text_from_files_stays_text(text):
    page = Page(text)
    for part in (HOSTILE, "nowhere <img src=y>", "</script><img src=x onerror=alert(1)>"):
        assert part in page.words
    assert not [tag for tag, _ in page.tags if tag in ("img", "b", "iframe")]
    drawn = [script for script in page.scripts if script.startswith('{"data"')]
    assert not any(re.search("[<>]", script) for script in drawn), "nothing can end the script"
    names = {name for script in drawn for name in re.findall(r'"name":"(.*?)"', script)}
    assert any("alert(1)" in name for name in names)
    assert not [name for name in names if re.search("<|\\\\u003c", name)], "labels are HTML too"


def test_nothing_is_to_be_loaded(text):
    page = Page(text)
    for tag, attributes in page.tags:
        for name in ("src", "href", "action", "data"):
            target = attributes.get(name) or ""
            assert target.startswith("#") or target in ("", "data:,"), (tag, target)
    [policy] = [each["content"] for tag, each in page.tags if "http-equiv" in each]
    assert policy.startswith("default-src 'none'")


def test_what_is_missing_is_said_on_stderr_too(tmp_path, capsys):
    folder = write_run(tmp_path / "run", looks=2)
    (folder / "lens.jsonl").unlink()
    text = report(tmp_path, folder)
    [line] = capsys.readouterr().err.splitlines()
    assert line in Page(text).words


def test_nothing_to_show_is_an_error(tmp_path):
    output = tmp_path / "report.html"
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / "absent"))):
        main(["report", str(tmp_path), str(tmp_path / "absent"), f"output={output}"])
    assert not output.exists()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["output=a.html"], "folders of the runs"),
        (["run", "output=a.pdf"], "output must be"),
        (["run", "outputs=a.html"], r"outputs=a\.html"),
        (["--hlep"], "--hlep"),
    ],
)
def test_mistakes_are_refused(arguments, named):
    with pytest.raises(ValueError, match=named):
        main(["report", *arguments])

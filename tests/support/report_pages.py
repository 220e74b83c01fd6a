"""Reports of runs as the tests read them."""

from html.parser import HTMLParser

import pytest

from solo_margins.lens.runs import load_runs

lens_report = pytest.importorskip("solo_margins.lens.report", reason="plotly is not installed")


class Page(HTMLParser):
    """The words and the tags of a page, as a browser reads them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self.scripts = [], "", []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] == "script" and self.cdata_elem:
            self.scripts.append(data)
        else:
            self.words += data


def report(tmp_path, *runs):
    """Write a report and return it as text."""
    output = tmp_path / "out" / "report.html"
    assert lens_report.write_report([*map(str, runs), f"output={output}"]) == output
    assert [path.name for path in output.parent.iterdir()] == ["report.html"]
    return output.read_text()


def plots(*folders):
    """Return the figures of a report by their titles."""
    runs, _ = load_runs(folders)
    sections = lens_report.sections(runs).values()
    return {title: plot["figure"] for some in sections for title, plot in some.items()}

"""Reports of runs as the tests read them."""

import json
import re
from html.parser import HTMLParser

from solo_margins.lens.report import write_report


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
    assert write_report([*map(str, runs), f"output={output}"]) == output
    assert [path.name for path in output.parent.iterdir()] == ["report.html"]
    return output.read_text()


def figures(text):
    """Return what the page draws."""
    [found] = re.findall(r'<script type="application/json" id="figures">(.*?)</script>', text)
    return json.loads(found)


def titles(text):
    return re.findall(r"<h3>(.*?)</h3>", text)


def by_title(text):
    return dict(zip(titles(text), figures(text), strict=True))

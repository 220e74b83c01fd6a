"""The report in a real browser: drawn, moved through time, light, dark and on paper."""

import pytest
from lens_runs import write_run

from solo_margins.lens.report import write_report

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("plotly", reason="the extra lens is not installed")
HOSTILE = "<b>run<"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    band = {"weight": 1.0, "lower": 0.2, "upper": 0.4}
    scalars = {"polarization_loss": 0.01, "pairs_in_band": 0.4}
    one = write_run(folder / HOSTILE, looks=6, polarization=band, scalars=scalars)
    two = write_run(folder / "two", looks=4, steps=500, settings={"seed": 2})
    output = folder / "report.html"
    write_report([str(one), str(two), f"output={output}"])
    return output.as_uri()


class Watched:
    """A page, and all that it said and asked for."""

    def __init__(self, browser, address, width, scheme):
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, offline=True
        )
        self.page = context.new_page()
        self.requests, self.said = [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.goto(address)

    def emulate(self, **media):
        """Change the kind of screen, and wait until the browser has told the page."""
        self.page.emulate_media(**media)
        frame = "(done) => requestAnimationFrame(() => requestAnimationFrame(done))"
        self.page.evaluate(f"() => new Promise({frame})")

    def count(self, selector):
        return self.page.locator(selector).count()

    def histograms(self):
        """Return what the plots of the slider hold, as plotly drew it."""
        return self.page.evaluate(
            """() => [...document.querySelectorAll("#distributions .plot")].map(
                 (plot) => plot.data.map((trace) => trace.y))"""
        )

    def outlines(self):
        """Return the lines of the first histogram as they are on the screen."""
        return self.page.evaluate(
            """() => [...document.querySelectorAll("#distributions .plot .js-line")].map(
                 (line) => line.getAttribute("d"))"""
        )

    def colours(self):
        """Return the colours of the paper, of a plot's words and of its first line."""
        return self.page.evaluate(
            """() => {
                 const plot = document.querySelector("#plot-0");
                 const of = (found, name) => getComputedStyle(found)[name];
                 return [
                   of(document.body, "backgroundColor"),
                   of(plot.querySelector(".xtick text"), "fill"),
                   of(plot.querySelector(".js-line"), "stroke"),
                 ];
               }"""
        )

    def too_wide(self):
        """Return what reaches over the right side of the page or of its card."""
        return self.page.evaluate(
            """() => {
                 const found = [];
                 const right = document.documentElement.clientWidth + 0.5;
                 for (const each of document.querySelectorAll("body *:not(svg *)"))
                   if (each.getBoundingClientRect().right > right)
                     found.push(each.tagName + "." + each.className);
                 for (const plot of document.querySelectorAll(".plot")) {
                   const edge = plot.closest(".card").getBoundingClientRect().right + 0.5;
                   const svg = plot.querySelector(".main-svg").getBoundingClientRect();
                   if (svg.right > edge) found.push(plot.id);
                 }
                 return found;
               }"""
        )


@pytest.fixture(scope="module")
def watched(browser, address):
    return Watched(browser, address, 1280, "light")


@pytest.fixture(autouse=True)
def clean(watched, address):
    yield
    assert watched.requests == [address], "the page is all that is loaded"
    assert watched.said == [], "neither console nor errors"


def test_every_plot_is_drawn(watched):
    plots = watched.count(".plot")
    assert plots > 15
    assert watched.count(".plot .main-svg:first-child") == plots
    empty = watched.page.evaluate(
        """() => [...document.querySelectorAll(".plot")]
             .filter((plot) => !plot.querySelector(".js-line[d]")).map((plot) => plot.id)"""
    )
    assert empty == []
    assert watched.count("#distributions .shapelayer path") == 1, "the band of polarization"
    assert watched.too_wide() == []


def test_the_slider_moves_the_histograms(watched):
    page = watched.page
    slider = page.locator("#time")
    assert page.locator("#step").text_content() == "1000 of 1000"
    last, drawn = watched.histograms(), watched.outlines()
    slider.focus()
    page.keyboard.press("Home")
    assert page.locator("#step").text_content() == "0 of 1000"
    first = watched.histograms()
    for before, after in zip(last, first, strict=True):
        assert all(one != other for one, other in zip(before, after, strict=True))
    assert watched.outlines() != drawn
    # Steps of both runs are on one axis; the second run ended at step 500 and stays there.
    assert slider.get_attribute("max") == "8"
    page.keyboard.press("End")
    assert watched.histograms() == last
    page.keyboard.press("ArrowLeft")
    assert page.locator("#step").text_content() == "800 of 1000"
    angles, at_the_end = watched.histograms()[0], last[0]
    assert angles[0] != at_the_end[0]
    assert angles[1] == at_the_end[1]
    page.keyboard.press("End")


def test_one_scale_for_all_steps(watched):
    top = "document.querySelector('#distributions .plot').layout.yaxis.range[1]"
    watched.page.locator("#time").focus()
    tops = []
    for _ in range(2):
        found = []
        for key in ("Home", "End"):
            watched.page.keyboard.press(key)
            found.append(watched.page.evaluate(top))
        tops.append(found)
        watched.page.locator("#same").click()
        watched.page.locator("#time").focus()
    (own, other), (same, again) = tops
    assert own != other
    assert same == again >= max(own, other)


def test_a_run_can_be_hidden(watched):
    shown = "[...document.querySelectorAll('.plot')].map((p) => p.data.map((t) => t.visible))"
    button = watched.page.locator("button.run", has_text="two").first
    button.click()
    assert any(False in plot for plot in watched.page.evaluate(shown))
    assert set(
        watched.page.locator("button.run", has_text="two").evaluate_all(
            "(all) => all.map((each) => each.getAttribute('aria-pressed'))"
        )
    ) == {"false"}
    button.click()
    assert not any(False in plot for plot in watched.page.evaluate(shown))


def test_names_are_shown_as_they_are(watched):
    assert watched.page.locator("table.overview th[scope=row]").first.text_content() == HOSTILE
    box = watched.page.locator("#plot-0 .nsewdrag").first
    box.scroll_into_view_if_needed()
    box.hover()
    hover = watched.page.locator("#plot-0 .hoverlayer")
    playwright.expect(hover).to_contain_text(HOSTILE)


def test_colours_follow_the_system_while_open(watched):
    light = watched.colours()
    watched.emulate(color_scheme="dark")
    dark = watched.colours()
    assert all(one != other for one, other in zip(light, dark, strict=True))
    watched.emulate(media="print")
    paper = watched.colours()
    assert paper[1:] == light[1:], "light on paper"
    watched.emulate(media="screen", color_scheme="light")
    assert watched.colours() == light


def test_paper_holds_everything(watched):
    page = watched.page
    watched.emulate(media="print")
    # A4 without its margins.
    page.set_viewport_size({"width": 703, "height": 1032})
    assert watched.too_wide() == []
    assert not page.locator("#time").is_visible()
    assert page.locator("#step").is_visible()
    breaks = page.locator("section").evaluate_all(
        "(all) => all.map((each) => getComputedStyle(each).breakBefore)"
    )
    assert breaks.count("page") > 4
    page.set_viewport_size({"width": 1280, "height": 800})
    watched.emulate(media="screen")
    widths = page.locator(".card:not(.wide) .plot").evaluate_all(
        "(all) => all.map((each) => [each.clientWidth, each.querySelector('svg').clientWidth])"
    )
    assert all(abs(space - plot) <= 1 for space, plot in widths), "back in its place"


@pytest.mark.parametrize("width", [390, 1440])
def test_other_widths(watched, width):
    watched.page.set_viewport_size({"width": width, "height": 800})
    watched.page.wait_for_function(
        "() => [...document.querySelectorAll('.plot')].every("
        "(each) => Math.abs(each.querySelector('svg').clientWidth - each.clientWidth) <= 1)"
    )
    if width > 1000:
        assert watched.too_wide() == []
    watched.page.set_viewport_size({"width": 1280, "height": 800})

"""The report in a real browser: drawn, moved through time, light, dark and on paper."""

import pytest
from lens_runs import SETTINGS, write_run
from report_pages import lens_report

from solo_margins.lens.runs import COLOURS

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

HOSTILE = "<b>run<"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    band = {"polarization": {"weight": 1.0, "lower": 0.2, "upper": 0.4}}
    polarized = {**SETTINGS["method_kwargs"], **band}
    inside = {"pairs_in_band": 0.4}
    one = write_run(folder / HOSTILE, looks=6, scalars=inside, method_kwargs=polarized)
    two = write_run(folder / "two", looks=4, steps=500, seed=2)
    output = folder / "report.html"
    lens_report.write_report([str(one), str(two), f"output={output}"])
    return output.as_uri()


class Opened:
    """A page, and all that it said and asked for."""

    def __init__(self, browser, address):
        screen = {"width": 1200, "height": 800}
        context = browser.new_context(viewport=screen, color_scheme="light", offline=True)
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

    def colours(self):
        """Return the colours of the page and of a plot's words."""
        return self.page.evaluate(
            """() => [getComputedStyle(document.body).backgroundColor,
                      getComputedStyle(plots[0].querySelector(".xtick text")).fill]"""
        )

    def too_wide(self):
        """Return what reaches over the right side of the page or of its card."""
        return self.page.evaluate(
            """() => {
                 const right = document.documentElement.clientWidth + 0.5;
                 const all = [...document.querySelectorAll("body *:not(svg *)")];
                 const over = all.filter((each) => each.getBoundingClientRect().right > right);
                 for (const plot of plots) {
                   const edge = plot.closest(".card").getBoundingClientRect().right + 0.5;
                   const svg = plot.querySelector(".main-svg");
                   if (svg.getBoundingClientRect().right > edge) over.push(plot);
                 }
                 return over.map((each) => each.tagName + "." + each.className);
               }"""
        )


@pytest.fixture(scope="module")
def opened(browser, address):
    return Opened(browser, address)


@pytest.fixture(autouse=True)
def clean(opened, address):
    yield
    assert opened.requests == [address], "the page is all that is loaded"
    assert opened.said == [], "neither console nor errors"


def test_every_plot_is_drawn(opened):
    # Plotly goes on drawing after the page is loaded.
    lines = 'plot.querySelectorAll(".js-line[d]").length > 0'
    opened.page.wait_for_function(f"() => plots.length > 15 && plots.every((plot) => {lines})")
    band = opened.page.locator("#distributions-over-time .shapelayer path")
    playwright.expect(band).to_have_count(1)
    assert opened.too_wide() == []


def test_the_slider_moves_the_histograms(opened):
    histograms = 'document.querySelector("#distributions-over-time .plot").data'
    shares = f"{histograms}.map((line) => line.y)"
    label = opened.page.locator("#distributions-over-time .slider-label").first
    assert label.text_content() == "step 1000"
    last = opened.page.evaluate(shares)
    track = opened.page.locator("#distributions-over-time .slider-rail-touch-rect")
    track.scroll_into_view_if_needed()
    track.click(position={"x": 1, "y": 10})
    playwright.expect(label).to_have_text("step 0")
    first = opened.page.evaluate(shares)
    assert all(one != other for one, other in zip(last, first, strict=True))


def test_a_click_on_a_run_hides_it_in_every_plot(opened):
    first, second = opened.page.locator("#representation .runs button").all()
    hidden = "plots.map((plot) => plot.data.filter((line) => line.visible === false))"
    colours = f"[...new Set({hidden}.flat().map((line) => line.line.color))]"
    first.click()
    # The first run is in every plot, also in those of the polarization.
    assert opened.page.evaluate(f"{hidden}.every((lines) => lines.length > 0)")
    assert opened.page.evaluate(colours) == [COLOURS[0]]
    second.click()
    assert opened.page.evaluate(colours) == list(COLOURS[:2])
    assert opened.page.locator('.runs button[aria-pressed="true"]').count() == 0
    first.click()
    second.click()
    assert opened.page.evaluate(colours) == []


def test_the_tool_bar_covers_nothing(opened):
    plot = opened.page.locator("#gradients .plot").first
    plot.hover()
    bar = plot.locator(".modebar")
    playwright.expect(bar).to_have_css("opacity", "1")
    bottom = bar.bounding_box()["y"] + bar.bounding_box()["height"]
    assert bottom <= plot.locator(".nsewdrag").first.bounding_box()["y"]
    opened.page.mouse.move(0, 0)


def test_light_and_dark(opened):
    light = opened.colours()
    opened.emulate(color_scheme="dark")
    dark = opened.colours()
    assert all(one != other for one, other in zip(light, dark, strict=True))
    opened.emulate(media="print")
    assert opened.colours() == light, "light on paper"
    opened.emulate(media="screen")
    assert opened.colours() == dark
    opened.page.locator("#theme").click()
    assert opened.colours() == light
    opened.emulate(color_scheme="light")
    assert opened.colours() == light


def test_paper_holds_everything(opened):
    opened.emulate(media="print")
    # A4 without its margins.
    opened.page.set_viewport_size({"width": 703, "height": 1032})
    assert opened.too_wide() == []
    assert not opened.page.locator("nav").is_visible()
    opened.page.set_viewport_size({"width": 1200, "height": 800})
    opened.emulate(media="screen")
    back = "Math.abs(plot.clientWidth - plot.querySelector('svg').clientWidth) <= 1"
    opened.page.wait_for_function(f"() => plots.every((plot) => {back})")

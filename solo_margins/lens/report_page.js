"use strict";
// Draws the plots of the page, in its colours, and moves the histograms through time.
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const slider = document.getElementById("time");
  const sameScale = document.getElementById("same");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const print = window.matchMedia("print");
  const COLOURS = 10;
  // Of a sheet of paper without its margins, the smaller of A4 and Letter, and a card's padding.
  const PRINTED_WIDTH = 660;
  const PRINTED_HEIGHT = 210; // three on a page
  const hidden = new Set();
  const steps = allSteps();
  let printing = print.matches;

  function allSteps() {
    const found = new Set();
    for (const figure of figures.filter((each) => each.timed))
      for (const trace of figure.data)
        for (const frame of trace.meta.frames) found.add(frame.step);
    return [...found].sort((one, other) => one - other);
  }

  function palette() {
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(name).trim();
    return {
      text: value("--text"), muted: value("--muted"), grid: value("--grid"),
      line: value("--line"), card: value("--card"), band: value("--band"),
      runs: Array.from({ length: COLOURS }, (_, place) => value(`--run-${place}`)),
    };
  }

  function translucent(colour, opacity) {
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    return `rgba(${red},${green},${blue},${opacity})`;
  }

  // What a run had seen at a step: its last observation until then.
  function frameAt(trace, step) {
    return trace.meta.frames.filter((each) => each.step <= step).pop();
  }

  // A histogram as a line that goes along its bins: their edges, and the last bin once more.
  function outline(frame) {
    if (!frame) return { x: [], y: [] };
    const width = (frame.high - frame.low) / frame.y.length;
    const y = [...frame.y, frame.y[frame.y.length - 1]];
    return { x: y.map((_, place) => frame.low + place * width), y };
  }

  function drawn(trace, colours, step) {
    const { run, frames } = trace.meta;
    const colour = run < 0 ? colours.muted : colours.runs[run % COLOURS];
    const copy = {
      ...trace,
      meta: { run },
      visible: !hidden.has(run),
      line: { ...trace.line, color: colour },
      marker: { ...trace.marker, color: colour },
    };
    if (trace.fill) copy.fillcolor = translucent(colour, 0.15);
    return frames ? { ...copy, ...outline(frameAt(trace, step)) } : copy;
  }

  function highest(figure, step) {
    let found = 0;
    for (const trace of figure.data.filter((each) => !hidden.has(each.meta.run))) {
      const frames = sameScale.checked ? trace.meta.frames : [frameAt(trace, step)];
      for (const frame of frames) if (frame) found = Math.max(found, ...frame.y);
    }
    return found || 1;
  }

  function styledAxis(axis, colours) {
    return {
      ...axis, gridcolor: colours.grid, linecolor: colours.line, zerolinecolor: colours.line,
      tickcolor: colours.line, showline: true, exponentformat: "power",
      spikecolor: colours.muted, spikethickness: 1, spikedash: "solid",
      title: { ...axis.title, standoff: 10 },
    };
  }

  function layoutOf(figure, colours, step) {
    const { layout } = figure;
    const found = {
      ...layout,
      xaxis: styledAxis(layout.xaxis, colours),
      yaxis: styledAxis(layout.yaxis, colours),
      autosize: !printing,
      height: printing ? PRINTED_HEIGHT : figure.wide ? 360 : 320,
      margin: { l: 56, r: 26, t: 14, b: 48 },
      showlegend: false,
      hovermode: "x unified",
      font: { color: colours.text, size: 13, family: "system-ui, sans-serif" },
      hoverlabel: { bgcolor: colours.card, bordercolor: colours.line, namelength: -1 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      shapes: (layout.shapes || []).map((shape) => ({
        ...shape, fillcolor: colours.band, line: { ...shape.line, color: colours.muted },
      })),
    };
    if (printing) found.width = PRINTED_WIDTH;
    if (figure.timed) found.yaxis.range = [0, 1.06 * highest(figure, step)];
    return found;
  }

  function draw(which) {
    const colours = palette();
    const step = slider ? steps[Number(slider.value)] : undefined;
    figures.forEach((figure, place) => {
      if (!which(figure)) return;
      const data = figure.data.map((trace) => drawn(trace, colours, step));
      const layout = layoutOf(figure, colours, step);
      const config = { responsive: true, displaylogo: false, displayModeBar: false };
      Plotly.react(`plot-${place}`, data, layout, config);
    });
    if (slider) {
      const words = `${step} of ${steps[steps.length - 1]}`;
      document.getElementById("step").textContent = words;
      slider.setAttribute("aria-valuetext", `step ${words}`);
    }
  }

  const everything = () => draw(() => true);

  function setPrinting(is) {
    if (printing === is) return;
    printing = is;
    everything();
  }

  if (slider) {
    slider.max = steps.length - 1;
    slider.value = steps.length - 1;
    slider.disabled = steps.length < 2;
    slider.addEventListener("input", () => draw((figure) => figure.timed));
    sameScale.addEventListener("change", () => draw((figure) => figure.timed));
  }
  for (const button of document.querySelectorAll("button.run")) {
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      const run = Number(button.dataset.run);
      if (!hidden.delete(run)) hidden.add(run);
      for (const other of document.querySelectorAll(`button.run[data-run="${run}"]`))
        other.setAttribute("aria-pressed", String(!hidden.has(run)));
      everything();
    });
  }
  dark.addEventListener("change", everything);
  print.addEventListener("change", (event) => setPrinting(event.matches));
  window.addEventListener("beforeprint", () => setPrinting(true));
  window.addEventListener("afterprint", () => setPrinting(false));
  everything();
})();

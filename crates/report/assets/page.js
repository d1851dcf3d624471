// Wires the page: draws plots when they come into view, and again when the theme, a choice or the
// size changes.

const scenarios = JSON.parse(document.getElementById("plots").textContent);

/** The choices of a reader in one scenario: nothing is hidden at first. */
function newChoices() {
  return { hiddenVariants: new Set(), hiddenFlows: new Set(), hiddenSides: new Set() };
}

function paintSwatches() {
  for (const swatch of document.querySelectorAll(".swatch[data-colour]")) {
    swatch.style.setProperty("--c", `var(--v${Number(swatch.dataset.colour) % 8})`);
  }
  for (const dash of document.querySelectorAll(".dash[data-dash]")) {
    dash.style.borderTopStyle = DASHES[Number(dash.dataset.dash) % DASHES.length];
  }
  for (const swatch of document.querySelectorAll(".swatch[data-flow]")) {
    swatch.style.setProperty("--c", `var(--f${Number(swatch.dataset.flow) % 8})`);
  }
}

/** A figure of the page: its chart, made on first sight. */
class Plot {
  constructor(figure, plots, choices) {
    this.figure = figure;
    this.plots = plots;
    this.choices = choices;
    this.place = figure.querySelector(".canvas");
    this.chart = null;
    for (const button of figure.querySelectorAll("button[data-toggle]")) {
      button.addEventListener("click", () => {
        button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
        this.draw();
      });
    }
    for (const select of figure.querySelectorAll("select")) {
      select.addEventListener("change", () => { this.chosen(select.dataset.select); this.draw(); });
    }
    this.chosen("variant");
  }

  pressed(toggle) {
    return this.figure.querySelector(`[data-toggle="${toggle}"]`)?.getAttribute("aria-pressed") === "true";
  }

  selected(name) {
    return this.figure.querySelector(`[data-select="${name}"]`)?.value;
  }

  /** A variant's flows, or traces, change with it. */
  chosen(name) {
    const select = this.figure.querySelector('[data-select="flow"], [data-select="line"]');
    if (name !== "variant" || !select) return;
    const variant = Number(this.selected("variant"));
    const traces = this.figure.dataset.plot === "trace";
    const kinds = traces ? [this.figure.dataset.kind] : ["enforced_window_bytes", "tenant_cwnd_bytes", "alpha"];
    const lines = (traces ? this.plots.traces : this.plots.series).filter((l) => l.variant === variant && kinds.includes(l.kind));
    const all = traces && lines.length > 1 ? [["", "all"]] : [];
    const labels = new Map([...all, ...lines.map((l) => [l.name, l.label])]);
    const before = select.value;
    select.replaceChildren(...[...labels].map(([value, label]) => new Option(label, value)));
    if (labels.has(before)) select.value = before;
  }

  start() {
    if (this.chart) return;
    this.chart = echarts.init(this.place, null, { renderer: "svg" });
    new ResizeObserver(() => this.chart.resize()).observe(this.place);
    this.chart.getZr().on("dblclick", () => this.draw());
    this.chart.on("datazoom", (event) => this.zoomed(event.batch ?? [event]));
    this.draw();
  }

  draw() {
    if (!this.chart) return;
    this.chart.setOption(this.option(theme()), { notMerge: true });
    // Dragging selects the stretch to zoom into.
    this.chart.dispatchAction({ type: "takeGlobalCursor", key: "dataZoomSelect", dataZoomSelectActive: true });
  }

  /** Gives logarithmic axes labels that suit what they now show. */
  zoomed(batch) {
    const axes = this.chart.getOption();
    for (const { dataZoomId, startValue, endValue } of batch) {
      const key = /[xy]Axis/.exec(dataZoomId ?? "")?.[0];
      const logarithmic = key && axes[key][0].axisLabel.customValues;
      if (logarithmic) this.chart.setOption({ [key]: logTickOptions(startValue, endValue) });
    }
  }

  option(look) {
    const { plots, choices } = this;
    const index = Number(this.figure.dataset.index);
    const visible = (entry) => !choices.hiddenVariants.has(entry.variant) && !choices.hiddenSides.has(entry.side);
    switch (this.figure.dataset.plot) {
      case "rtt": return cdfOption(look, plots, plots.rtt.filter(visible), this.pressed("tail"));
      case "fct": return cdfOption(look, plots, plots.fct[index].curves.filter(visible), this.pressed("tail"));
      case "queue": return this.queueOption(look, visible);
      case "goodput": return this.goodputOption(look, index);
      case "trace": return this.traceOption(look);
      default: return this.windowsOption(look);
    }
  }

  queueOption(look, visible) {
    const all = this.plots.series.filter((l) => l.kind === "queue_bytes");
    const link = this.selected("link") ?? all[0].name;
    const lines = all.filter((l) => l.name === link && visible(l));
    return timeOption(look, lines, {
      quantity: "bytes", name: "queue", log: this.pressed("log"), bounds: timeBounds(all),
      styleOf: (l) => ({ ...variantStyle(look, this.plots.variants[l.variant].colour), width: 1.2 }),
      nameOf: (l) => this.plots.variants[l.variant].name,
    });
  }

  goodputOption(look, variant) {
    const all = this.plots.series.filter((l) => l.kind === "goodput_bps");
    const lines = all.filter((l) => l.variant === variant && !this.choices.hiddenFlows.has(l.order));
    const many = flowCount(this.plots) > FLOWS_WITH_COLOURS;
    const one = variantStyle(look, this.plots.variants[variant].colour);
    return timeOption(look, lines, {
      quantity: "bps", name: "goodput", largest: Math.max(...all.map((l) => Math.max(...l.y))), bounds: timeBounds(all),
      styleOf: (l) => (many ? { ...one, width: 1, opacity: 0.55 } : { color: look.flows[l.order % 8], width: 1.4 }),
      nameOf: (l) => l.label, sort: true,
    });
  }

  traceOption(look) {
    const { kind } = this.figure.dataset;
    const [variant, name] = [Number(this.selected("variant")), this.selected("line")];
    const all = this.plots.traces.filter((l) => l.kind === kind);
    const shown = (l) => kind === "queue_bytes" || !this.choices.hiddenFlows.has(l.order);
    const lines = all.filter((l) => l.variant === variant && (name ? l.name === name : shown(l)));
    const many = lines.length > FLOWS_WITH_COLOURS;
    const one = variantStyle(look, this.plots.variants[variant].colour);
    const option = timeOption(look, lines, {
      quantity: quantityOf(kind), name: this.figure.querySelector(".name").textContent, log: this.pressed("log"), bounds: timeBounds(all),
      styleOf: (l) => (many ? { ...one, width: 1, opacity: 0.55 } : { color: look.flows[l.order % 8], width: 1.4 }),
      nameOf: (l) => l.label, sort: true,
    });
    return many ? option : withLegend(look, option);
  }

  windowsOption(look) {
    const [variant, flow] = [Number(this.selected("variant")), this.selected("flow")];
    const lines = this.plots.series.filter((l) => l.variant === variant && l.name === flow);
    const windows = lines.filter((l) => l.kind.endsWith("_bytes") && l.kind !== "queue_bytes");
    const alpha = lines.find((l) => l.kind === "alpha");
    const colour = variantStyle(look, this.plots.variants[variant].colour).color;
    return windowsOption(look, colour, windows, alpha, this.pressed("log"));
  }
}

/** Flows that panels of goodput show, at most. */
function flowCount(plots) {
  return Math.max(0, ...plots.series.filter((l) => l.kind === "goodput_bps").map((l) => l.order + 1));
}

/** One button per flow above the panels, unless there are too many to tell apart. */
function flowLegend(section, plots) {
  const place = section.querySelector(".legend.flows");
  if (!place || flowCount(plots) > FLOWS_WITH_COLOURS) return;
  const labels = new Map(plots.series.filter((l) => l.kind === "goodput_bps").map((l) => [l.order, l]));
  // The same flow has another stack in another variant: the label then names the tenant only.
  const stable = (order, l) => {
    const same = plots.series.every((m) => m.kind !== "goodput_bps" || m.order !== order || m.label === l.label);
    return same ? l.label : l.label.replace(/ \([^()]*\)$/, "");
  };
  for (const [order, l] of [...labels].sort((a, b) => a[0] - b[0])) {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.flow = order;
    button.setAttribute("aria-pressed", "true");
    const swatch = document.createElement("span");
    swatch.className = "swatch";
    swatch.dataset.flow = order;
    button.append(swatch, stable(order, l));
    place.append(button);
  }
}

/** Lets the buttons of a legend hide what their `data-KEY` names. */
function wireLegend(section, key, hidden, changed) {
  for (const button of section.querySelectorAll(`.legend button[data-${key}]`)) {
    button.addEventListener("click", () => {
      const id = Number(button.dataset[key]);
      const show = hidden.delete(id);
      if (!show) hidden.add(id);
      button.setAttribute("aria-pressed", String(show));
      changed();
    });
  }
}

function wireScenario(section, observer) {
  const plots = scenarios[Number(section.dataset.scenario)];
  const choices = newChoices();
  flowLegend(section, plots);
  const all = [...section.querySelectorAll("figure[data-plot]")].map((figure) => new Plot(figure, plots, choices));
  all.push(...[...section.querySelectorAll("figure[data-topology]")].map((figure) => new Topology(figure, plots)));
  const redraw = () => {
    for (const panel of section.querySelectorAll("[data-panel]")) {
      panel.hidden = choices.hiddenVariants.has(Number(panel.dataset.panel));
    }
    for (const plot of all) plot.draw();
  };
  wireLegend(section, "variant", choices.hiddenVariants, redraw);
  wireLegend(section, "flow", choices.hiddenFlows, redraw);
  wireLegend(section, "side", choices.hiddenSides, redraw);
  for (const plot of all) observer.observe(plot);
  return all;
}

/** Starts plots as they come near the window. */
function starter() {
  const byFigure = new Map();
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((e) => e.isIntersecting)) {
      byFigure.get(entry.target).start();
      seen.unobserve(entry.target);
    }
  }, { rootMargin: "400px" });
  return { observe(plot) { byFigure.set(plot.figure, plot); seen.observe(plot.figure); } };
}

const observer = starter();
const allPlots = [...document.querySelectorAll("section[data-scenario]")].flatMap((section) => wireScenario(section, observer));
paintSwatches();

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => allPlots.forEach((plot) => plot.draw()));

// Paper is white and shows everything.
let closed = [];
window.addEventListener("beforeprint", () => {
  document.documentElement.classList.add("printing");
  closed = [...document.querySelectorAll("details:not([open])")];
  for (const details of closed) details.open = true;
  for (const plot of allPlots) { plot.start(); plot.draw(); }
});
window.addEventListener("afterprint", () => {
  document.documentElement.classList.remove("printing");
  for (const details of closed) details.open = false;
  for (const plot of allPlots) plot.draw();
});

// Draws a sweep: bars with confidence intervals, grouped as the reader likes, and the table of a figure.

const sweep = JSON.parse(document.getElementById("plots").textContent);
const NONE = "";
const ROLES = ["group", "colour", "facet"];
const select = (name) => document.querySelector(`[data-select="${name}"]`);
const figure = () => sweep.figures[Number(select("figure").value)];

/** Positions of dimensions that bars are arranged by: [group, colour, facet], -1 for none. */
function arrangement() {
  return ROLES.map((name) => (select(name).value === NONE ? -1 : Number(select(name).value)));
}

/** Two roles do not share a dimension: the one that was chosen keeps it, the other takes what it leaves. */
function settle(name, before) {
  const chosen = select(name).value;
  if (!ROLES.includes(name) || chosen === NONE) return;
  for (const other of ROLES) {
    if (other !== name && select(other).value === chosen) select(other).value = other === "group" && before === NONE ? firstFree() : before;
  }
}

function firstFree() {
  const taken = ["colour", "facet"].map((name) => select(name).value);
  return String(sweep.dimensions.findIndex((_, i) => !taken.includes(String(i))));
}

/** Dimensions that neither group, colour nor facet shows are held at a value. */
function showHeld() {
  const used = arrangement();
  for (const label of document.querySelectorAll("[data-held]")) {
    label.hidden = used.includes(Number(label.dataset.held));
  }
}

function isHeld(cell, used) {
  return sweep.dimensions.every((_, i) => used.includes(i) || cell.at[i] === Number(select(`held-${i}`).value));
}

/** Names of a dimension's values, or one empty name where there is none. */
const valuesOf = (dimension) => (dimension < 0 ? [""] : sweep.dimensions[dimension].values);

/** One bar and its whisker: [group, mean, low, high, n]. */
function renderBar(colours, colour, style) {
  return (params, api) => {
    const width = api.size([1, 0])[0] * 0.8 / colours;
    const [x, top] = api.coord([api.value(0), api.value(1)]);
    const left = x - width * colours / 2 + width * colour;
    const [, bottom] = api.coord([api.value(0), 0]);
    const bar = {
      type: "rect", shape: { x: left + width * 0.05, y: Math.min(top, bottom), width: width * 0.9, height: Math.abs(bottom - top) },
      style: { fill: style.color },
    };
    const [low, high] = [api.value(2), api.value(3)];
    if (!Number.isFinite(low) || !Number.isFinite(high)) return bar;
    const centre = left + width / 2;
    const [, lowY] = api.coord([api.value(0), low]);
    const [, highY] = api.coord([api.value(0), high]);
    const cap = Math.min(6, width * 0.3);
    const stroke = { stroke: style.whisker, lineWidth: 1.4 };
    const line = (x1, y1, x2, y2) => ({ type: "line", shape: { x1, y1, x2, y2 }, style: stroke });
    return {
      type: "group",
      children: [bar, line(centre, lowY, centre, highY), line(centre - cap, lowY, centre + cap, lowY), line(centre - cap, highY, centre + cap, highY)],
    };
  };
}

function barOption(look, cells, group, colour, bounds) {
  const shown = figure();
  const unit = unitFor(shown.quantity, bounds[1]);
  const groups = valuesOf(group);
  const colours = valuesOf(colour);
  const series = colours.map((name, k) => {
    const own = cells.filter((cell) => colour < 0 || cell.at[colour] === k);
    const style = { color: look.variants[k % 8], whisker: look.text };
    return {
      type: "custom", name, renderItem: renderBar(colours.length, k, style), itemStyle: { color: style.color }, clip: true,
      encode: { x: 0, y: [1, 2, 3] },
      data: own.map((cell) => {
        const [n, mean, low, high] = cell.figures[shown.index];
        return [group < 0 ? 0 : cell.at[group], mean, low ?? NaN, high ?? NaN, n];
      }),
    };
  });
  return {
    ...base(look, String, () => []),
    grid: { left: 62, right: 14, top: colours.length > 1 ? 34 : 14, bottom: 46 },
    legend: { show: colours.length > 1, top: 0, type: "scroll", textStyle: { color: look.text }, itemHeight: 10, itemWidth: 14 },
    toolbox: { show: false },
    tooltip: {
      trigger: "item", confine: true, transitionDuration: 0, backgroundColor: look.raised, borderColor: look.line,
      textStyle: { color: look.text, fontFamily: look.font },
      formatter: ({ seriesName, color, value }) => {
        const [at, mean, low, high, n] = value;
        const rows = [[color, "mean", withUnit(shown.quantity, mean)]];
        if (Number.isFinite(low)) rows.push(["transparent", "95% interval", `${withUnit(shown.quantity, low)} – ${withUnit(shown.quantity, high)}`]);
        rows.push(["transparent", "runs", String(n)]);
        return tooltip(escapeHtml([groups[at], seriesName].filter((name) => name !== "").join(", ")), rows);
      },
    },
    xAxis: axis(look, group < 0 ? "" : sweep.dimensions[group].name, { type: "category", data: groups, splitLine: { show: false } }),
    yAxis: linearAxis(look, shown.name.split(".").at(-1), unit, { min: bounds[0], max: bounds[1], nameGap: 44 }),
    series,
  };
}

/** From 0 to a round number above the highest whisker, so that facets have one scale. */
function boundsOf(cells) {
  const values = cells.flatMap((cell) => { const [, mean, low, high] = cell.figures[figure().index]; return [mean, low ?? mean, high ?? mean]; });
  const round = (value) => { const step = 10 ** Math.floor(Math.log10(value)) / 2; return Math.ceil(value / step) * step; };
  const [least, most] = values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [0, 0]);
  if (least === 0 && most === 0) return [0, 1];
  return [least < 0 ? -round(-least) : 0, most > 0 ? round(most) : 0];
}

let charts = [];

function draw() {
  const [group, colour, facet] = arrangement();
  showHeld();
  for (const { chart } of charts) chart.dispose();
  const place = document.getElementById("bars");
  const cells = sweep.cells.filter((cell) => cell.figures[figure().index] && isHeld(cell, [group, colour, facet]));
  const bounds = boundsOf(cells);
  const panels = valuesOf(facet).map((name, k) => [name, cells.filter((cell) => facet < 0 || cell.at[facet] === k)]).filter(([, own]) => own.length > 0);
  place.replaceChildren();
  place.classList.toggle("wide", panels.length === 1);
  if (panels.length === 0) {
    const empty = document.createElement("p");
    empty.className = "no-data";
    empty.textContent = "No run of these values has measured this figure.";
    place.append(empty);
  }
  const look = theme();
  charts = panels.map(([name, own]) => {
    const frame = document.createElement("figure");
    const caption = document.createElement("figcaption");
    const title = document.createElement("span");
    title.className = "name";
    title.textContent = facet < 0 ? figure().name : `${figure().name}, ${sweep.dimensions[facet].name} ${name}`;
    const canvas = document.createElement("div");
    canvas.className = "canvas";
    caption.append(title);
    frame.append(caption, canvas);
    place.append(frame);
    const chart = echarts.init(canvas, null, { renderer: "svg" });
    chart.setOption(barOption(look, own, group, colour, bounds));
    return { chart };
  });
  fillTable();
}

/** Column of the table that it is sorted by, and whether downwards. */
const order = { column: -1, down: false };

function tableRows() {
  return sweep.cells.filter((cell) => cell.figures[figure().index]).map((cell) => {
    const [n, mean, low, high, sd, min, max] = cell.figures[figure().index];
    const half = high === null ? null : high - mean;
    return { keys: [...cell.at, n, mean, half, sd, min, max], names: cell.at.map((value, i) => sweep.dimensions[i].values[value]) };
  });
}

function fillTable() {
  const body = document.querySelector("#cells tbody");
  const rows = tableRows();
  const quantity = figure().quantity;
  if (order.column >= 0) {
    const key = (row) => row.keys[order.column] ?? -Infinity;
    rows.sort((a, b) => (key(a) - key(b)) * (order.down ? -1 : 1));
  }
  const names = sweep.dimensions.length;
  body.replaceChildren(...rows.map((row) => {
    const line = document.createElement("tr");
    row.keys.forEach((key, i) => {
      const cell = document.createElement("td");
      if (i > names) cell.textContent = key === null ? "–" : withUnit(quantity, key);
      else cell.textContent = i === names ? String(key) : row.names[i];
      if (i >= names) cell.className = "figure";
      line.append(cell);
    });
    return line;
  }));
  document.querySelectorAll("#cells thead th").forEach((heading, i) => {
    heading.setAttribute("aria-sort", i !== order.column ? "none" : order.down ? "descending" : "ascending");
  });
}

function wire() {
  if (!document.getElementById("bars")) return;
  const choices = [...document.querySelectorAll("select[data-select]")];
  const values = () => new Map(choices.map((choice) => [choice, choice.value]));
  let before = values();
  for (const choice of choices) {
    choice.addEventListener("change", () => { settle(choice.dataset.select, before.get(choice)); before = values(); draw(); });
  }
  document.querySelectorAll("#cells thead button").forEach((button, i) => {
    button.addEventListener("click", () => {
      order.down = order.column === i && !order.down;
      order.column = i;
      fillTable();
    });
  });
  new ResizeObserver(() => charts.forEach(({ chart }) => chart.resize())).observe(document.getElementById("bars"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
}

wire();

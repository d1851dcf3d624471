// ECharts options for each kind of plot.

/** Above this many flows a panel shows them in the variant's colour instead of one each. */
const FLOWS_WITH_COLOURS = 8;
/** A tooltip lists this many lines at most. */
const TOOLTIP_LINES = 10;

/**
 * The options common to all plots. `tip(x)` returns tooltip rows [colour, name, value] for a place
 * on the x axis.
 */
function base(look, heading, tip) {
  return {
    animation: false,
    textStyle: { fontFamily: look.font, color: look.text },
    aria: { enabled: false },
    grid: { left: 58, right: 18, top: 16, bottom: 46 },
    toolbox: { show: true, itemSize: 0, feature: { dataZoom: { filterMode: "none", title: { zoom: "", back: "" } } } },
    tooltip: {
      trigger: "axis", confine: true, transitionDuration: 0, backgroundColor: look.raised, borderColor: look.line,
      textStyle: { color: look.text, fontFamily: look.font },
      axisPointer: { type: "line", snap: false, lineStyle: { color: look.faint, type: "dotted" }, label: { show: false } },
      formatter: (params) => tooltip(heading(params[0].axisValue), tip(params[0].axisValue)),
    },
  };
}

function tooltip(heading, rows) {
  const dot = (colour) => `<span class="swatch" style="background:${colour}"></span>`;
  const row = ([colour, name, value]) => `<tr><td>${dot(colour)}${escapeHtml(name)}</td><td>${value}</td></tr>`;
  const shown = rows.slice(0, TOOLTIP_LINES).map(row).join("");
  const more = rows.length > TOOLTIP_LINES ? `<tr><td>… ${rows.length - TOOLTIP_LINES} more</td></tr>` : "";
  return `<div class="tip"><strong>${heading}</strong><table>${shown}${more}</table></div>`;
}

function axis(look, name, more) {
  return {
    name, nameLocation: "middle", nameGap: 28, nameTextStyle: { color: look.faint },
    axisLine: { show: true, lineStyle: { color: look.line } },
    axisTick: { show: true, lineStyle: { color: look.line } },
    axisLabel: { color: look.faint, hideOverlap: true },
    splitLine: { show: true, lineStyle: { color: look.line, opacity: 0.6 } },
    ...more,
  };
}

/** A linear axis in `unit`, from 0. */
function linearAxis(look, name, unit, more = {}) {
  const label = unit.symbol ? `${name}, ${unit.symbol}` : name;
  return axis(look, label, {
    type: "value", min: 0, axisLabel: { color: look.faint, hideOverlap: true, formatter: (v) => tick(v / unit.scale) }, ...more,
  });
}

/** Places for labels between two powers of ten, closer together the smaller the stretch is. */
function logTicks(low, high) {
  const steps = high - low > 1.2 ? [1, 2, 5] : [1, 2, 3, 4, 5, 6, 7, 8, 9];
  const ticks = [];
  if (high - low > 0.4) {
    for (let decade = Math.floor(low); decade <= Math.ceil(high); decade++) {
      for (const step of steps) ticks.push(decade + Math.log10(step));
    }
  } else {
    const step = roundUp((10 ** high - 10 ** low) / 6);
    const first = Math.ceil(10 ** low / step);
    for (let i = 0; i < 8; i++) ticks.push(Math.log10((first + i) * step));
  }
  return ticks.filter((t) => t >= low - 1e-9 && t <= high + 1e-9);
}

/** Tick options of a logarithmic axis that shows `low` to `high`. */
function logTickOptions(low, high) {
  const customValues = logTicks(low, high);
  return { axisTick: { customValues }, axisLabel: { customValues } };
}

/** A logarithmic axis whose data are already log10. */
function logAxis(look, name, unit, low, high, more = {}) {
  const { axisTick, axisLabel } = logTickOptions(low, high);
  const label = unit.symbol ? `${name}, ${unit.symbol}` : name;
  return axis(look, label, {
    type: "value", min: low, max: high,
    axisTick: { show: true, lineStyle: { color: look.line }, ...axisTick },
    axisLabel: { color: look.faint, hideOverlap: true, formatter: (v) => tick(10 ** v / unit.scale), ...axisLabel },
    ...more,
  });
}

/** A logarithmic axis spans this many decades at most: below lie single packets in queues of megabytes. */
const DECADES = 5;

/** The bounds of log10 of positive values, widened to 1, 2 or 5 of a decade. */
function logBounds(values) {
  const positive = values.filter((v) => v > 0);
  if (positive.length === 0) return [0, 1];
  const steps = [1, 2, 5, 10].map(Math.log10);
  const [low, high] = positive.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, 0]).map(Math.log10);
  const least = Math.max(low, high - DECADES);
  const below = Math.floor(least) + steps.findLast((s) => Math.floor(least) + s <= least + 1e-9);
  const above = Math.floor(high) + steps.find((s) => Math.floor(high) + s >= high - 1e-9);
  return [below, above > below ? above : below + 1];
}

/** The index of the last x that is ≤ `at`; -1 when there is none. */
function lastAtOrBefore(xs, at) {
  let [low, high] = [0, xs.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= at) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

function line(name, style, data, more = {}) {
  return {
    type: "line", name, data, symbol: "none", lineStyle: { width: 1.6, ...style }, itemStyle: { color: style.color },
    emphasis: { disabled: true }, ...more,
  };
}

/** Sides of a comparison have the variant's colour and a dash each. */
function curveStyle(look, plots, { variant, side }) {
  const { colour } = plots.variants[variant];
  return variantStyle(look, side === undefined ? colour : colour % 8 + 8 * side);
}

function curveName(plots, { variant, side }) {
  const { name } = plots.variants[variant];
  return side === undefined ? name : `${name}, ${plots.sides[side]}`;
}

/** CDFs over a logarithmic axis of time; as a tail, 1 − F on a logarithmic axis. */
function cdfOption(look, plots, curves, tail) {
  const [low, high] = logBounds(curves.flatMap((c) => [c.x[0], c.x.at(-1)]));
  const unit = unitFor("us", 10 ** high / 2);
  const fraction = (c, x) => { const i = lastAtOrBefore(c.x, x); return i < 0 ? 0 : c.y[i]; };
  const style = (c) => curveStyle(look, plots, c);
  // Beyond the last sample the tail is zero, which a logarithmic axis cannot show: the curve ends one sample above.
  const height = (c, i) => (tail ? Math.log10(Math.max(1 - (i > 0 ? c.y[i - 1] : 0), 1 / c.count)) : c.y[i]);
  const steps = (c) => (c.x.length === c.count ? { step: "end" } : {});
  const points = (c) => c.x.map((x, i) => [Math.log10(Math.max(x, 10 ** low)), height(c, i)]);
  const rows = (logX) => curves.map((c) => {
    const f = fraction(c, 10 ** logX);
    const percent = `${(100 * f).toFixed(f > 0.99 && f < 1 ? 2 : 1)} %`;
    return [style(c).color, curveName(plots, c), tail ? tick(1 - f) : percent];
  });
  const option = base(look, (x) => withUnit("us", 10 ** x), rows);
  const least = Math.floor(Math.log10(1 / Math.max(...curves.map((c) => c.count), 10)));
  const tailTicks = { color: look.faint, formatter: (v) => tick(10 ** v) };
  const series = curves.map((c) => line(curveName(plots, c), style(c), points(c), steps(c)));
  if (!tail && series.length > 0) series[0].markLine = quantileLines(look);
  return {
    ...option,
    xAxis: logAxis(look, "time", unit, low, high),
    yAxis: tail
      ? axis(look, "fraction above", { type: "value", min: least, max: 0, interval: 1, nameGap: 48, axisLabel: tailTicks })
      : axis(look, "fraction of samples", { type: "value", min: 0, max: 1, nameGap: 40, axisLabel: { color: look.faint, formatter: tick } }),
    series,
  };
}

/** Median and p99 across a CDF. */
function quantileLines(look) {
  const label = { position: "insideStartTop", color: look.faint, fontSize: 10, formatter: (p) => p.name };
  return {
    silent: true, symbol: "none", lineStyle: { color: look.faint, type: "dotted", width: 1 }, label,
    data: [{ name: "p50", yAxis: 0.5 }, { name: "p99", yAxis: 0.99 }],
  };
}

/** Lines over time. `styleOf(line)` and `nameOf(line)` say how a line looks and is called. */
function timeOption(look, lines, { quantity, name, styleOf, nameOf, log = false, largest, bounds, sort = false }) {
  const top = largest ?? Math.max(...lines.map((l) => Math.max(...(l.band?.[1] ?? l.y))), 0);
  const unit = unitFor(quantity, top);
  const [low, high] = log ? logBounds(lines.flatMap((l) => [...l.y, ...(l.band?.flat() ?? [])])) : [0, 0];
  const place = (v) => (log ? Math.log10(Math.max(v, 10 ** low)) : v);
  const write = (l, i) => {
    const range = l.band ? ` (${withUnit(quantity, l.band[0][i])} to ${withUnit(quantity, l.band[1][i])})` : "";
    return withUnit(quantity, l.y[i]) + range;
  };
  const rows = (t) => {
    const at = lines.map((l) => [l, lastAtOrBefore(l.x, t)]).filter(([, i]) => i >= 0);
    if (sort) at.sort(([a, i], [b, j]) => b.y[j] - a.y[i]);
    return at.map(([l, i]) => [styleOf(l).color, nameOf(l), write(l, i)]);
  };
  const bands = lines.filter((l) => l.band).map((l) => band(styleOf(l).color, l, place));
  const yName = { nameGap: 46, ...(log ? {} : { max: roundUp(top) }) };
  return {
    ...base(look, (t) => `${digits(t)} s`, rows),
    xAxis: timeAxis(look, bounds),
    yAxis: log ? logAxis(look, name, unit, low, high, yName) : linearAxis(look, name, unit, yName),
    series: [...bands, ...lines.map((l) => line(nameOf(l), styleOf(l), l.x.map((t, i) => [t, place(l.y[i])])))],
  };
}

/** From the smallest to the largest value of each stretch of time, behind the line of means. */
function band(colour, l, place) {
  const [low, high] = l.band;
  const corners = [...l.x.map((t, i) => [t, place(high[i])]), ...l.x.map((t, i) => [t, place(low[i])]).reverse()];
  return {
    type: "custom", data: [[l.x[0], place(low[0])]], silent: true, clip: true, z: 1, tooltip: { show: false },
    renderItem: (params, api) => ({
      type: "polygon", shape: { points: corners.map((corner) => api.coord(corner)) }, style: { fill: colour, opacity: 0.18 },
    }),
  };
}

/** Seconds; an end that is no whole number gets no label. */
function timeAxis(look, [min, max]) {
  const axisLabel = { color: look.faint, hideOverlap: true, formatter: tick, showMaxLabel: Number.isInteger(max) };
  return axis(look, "time, s", { type: "value", min, max, axisLabel, splitLine: { show: false } });
}

/** First and last moment of some lines, the last rounded up to its second digit, or to a tenth. */
function timeBounds(lines) {
  const ends = lines.filter((l) => l.x.length > 0).flatMap((l) => [l.x[0], l.x.at(-1)]);
  const last = Math.max(...ends);
  if (!(last > 0)) return [0, 1];
  const parts = 10 ** Math.max(1, 1 - Math.floor(Math.log10(last)));
  return [Math.floor(Math.min(...ends)), Math.ceil(last * parts - 1e-6) / parts];
}

/** The quantity that a name such as `cwnd_bytes` ends with. */
function quantityOf(kind) {
  const unit = kind.split("_").at(-1);
  return unit in UNITS ? unit : "none";
}

/** With the names of its lines above. */
function withLegend(look, option) {
  const legend = { show: true, type: "scroll", top: 0, textStyle: { color: look.text }, selectedMode: false, icon: "roundRect", itemHeight: 3 };
  return { ...option, legend, grid: { ...option.grid, top: 34 } };
}

/** A round number at or above `value`, so that panels share an axis. */
function roundUp(value) {
  if (!(value > 0)) return 1;
  const decade = 10 ** Math.floor(Math.log10(value));
  return decade * [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].find((step) => step * decade >= value);
}

/** Enforced window and tenant's cwnd of a flow, and α below when there is one. */
function windowsOption(look, variantColour, windows, alpha, log) {
  const kinds = { enforced_window_bytes: "enforced window", tenant_cwnd_bytes: "tenant's cwnd" };
  const styles = {
    enforced_window_bytes: { color: variantColour, width: 2 },
    tenant_cwnd_bytes: { color: look.faint, type: "dashed" },
  };
  const all = alpha ? [...windows, alpha] : windows;
  const option = timeOption(look, windows, {
    quantity: "bytes", name: "window", log, bounds: timeBounds(all), styleOf: (l) => styles[l.kind], nameOf: (l) => kinds[l.kind],
  });
  const shared = withLegend(look, option);
  if (!alpha) return shared;
  const alphaStyle = { color: look.flows[3] };
  const tip = option.tooltip.formatter;
  const value = (t) => alpha.y[lastAtOrBefore(alpha.x, t)];
  const row = (t) => (value(t) === undefined ? "" : `<div class="tip">α ${digits(value(t))}</div>`);
  return {
    ...shared,
    axisPointer: { link: [{ xAxisIndex: "all" }] },
    tooltip: { ...option.tooltip, formatter: (params) => tip(params) + row(params[0].axisValue) },
    grid: [{ ...shared.grid, bottom: "38%" }, { ...shared.grid, top: "70%" }],
    xAxis: [{ ...option.xAxis, name: "", axisLabel: { show: false } }, { ...option.xAxis, gridIndex: 1 }],
    yAxis: [option.yAxis, axis(look, "α", { type: "value", min: 0, max: 1, interval: 0.5, gridIndex: 1, nameGap: 46 })],
    series: [...option.series, line("α", alphaStyle, alpha.x.map((t, i) => [t, alpha.y[i]]), { xAxisIndex: 1, yAxisIndex: 1 })],
  };
}

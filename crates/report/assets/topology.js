// The network over time: a picture per frame of what links, queues and pauses did.
//
// Signs that look alike are one SVG path: some twenty paths change from frame to frame, whatever
// the number of links. With an element per link, style and layout of 500 links take longer than a
// frame lasts.

const SVG = "http://www.w3.org/2000/svg";
/** As the page's data has them: a full link, a full queue, a frame that is all pause. */
const [FULL_LOAD, FULL_QUEUE, ALL_PAUSED] = [250, 65535, 255];
/** Widths of a link by load, the first of an idle one; strengths of a pause. */
const [LOAD_STEPS, PAUSE_STEPS] = [12, 4];
/** From here on a queue is nearly full. */
const NEARLY_FULL = 0.9;
/** Room for a letter of a name. */
const LETTER = 6.3;

function svgNode(name, attributes, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

/** The cells of a film by kind, each by direction and then by frame. */
async function unpack(film, ways) {
  const packed = Uint8Array.from(atob(film.cells), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const bytes = await new Response(stream).arrayBuffer();
  const count = ways * film.frames;
  const view = new DataView(bytes);
  const words = (from) => Uint16Array.from({ length: count }, (_, i) => view.getUint16(from + 2 * i, true));
  return {
    load: new Uint8Array(bytes, 0, count), queue: words(count),
    paused: new Uint8Array(bytes, 3 * count, count), drops: words(4 * count),
  };
}

/** The sums that strips show, by frame: paused directions, bytes queued in switches, drops. */
function sums(film, cells, { ways, nodes }) {
  const all = { paused: new Uint32Array(film.frames), queued: new Float64Array(film.frames), drops: new Uint32Array(film.frames) };
  for (let way = 0; way < ways.length; way++) {
    const inSwitch = nodes[ways[way].from].host ? 0 : 1;
    for (let frame = 0; frame < film.frames; frame++) {
      const at = way * film.frames + frame;
      all.paused[frame] += cells.paused[at] > 0;
      all.queued[frame] += inSwitch * (cells.queue[at] / FULL_QUEUE) * film.scale_bytes[way];
      all.drops[frame] += cells.drops[at];
    }
  }
  return all;
}

/** A figure with the films of a scenario. */
class Topology {
  constructor(figure, plots) {
    this.figure = figure;
    this.plots = plots;
    this.frame = 0;
    this.way = null;
    this.playing = null;
    this.made = new Map();
    this.svg = figure.querySelector(".network");
    this.strip = figure.querySelector(".strip");
    this.tip = figure.querySelector(".floating");
    this.now = figure.querySelector(".now");
    this.range = figure.querySelector("[data-scrub]");
  }

  choice(name) { return this.figure.querySelector(`[data-choose="${name}"]`); }

  start() {
    if (this.started) return;
    this.started = true;
    const variants = [...new Set(this.plots.films.map((f) => f.variant))];
    this.choice("variant").replaceChildren(...variants.map((v) => new Option(this.plots.variants[v].name, v)));
    this.repeats();
    this.wire();
    this.load();
  }

  /** For the page, which redraws plots when colours change: those of a picture are the style's. */
  draw() {}

  /** A variant's repeats change with it. */
  repeats() {
    const [select, variant] = [this.choice("repeat"), Number(this.choice("variant").value)];
    const repeats = this.plots.films.filter((f) => f.variant === variant).map((f) => f.repeat);
    const before = Number(select.value);
    select.replaceChildren(...repeats.map((r) => new Option(r, r)));
    if (repeats.includes(before)) select.value = before;
    select.disabled = repeats.length < 2;
  }

  wire() {
    const { figure, range, svg, strip } = this;
    const actions = { play: () => this.toggle(), back: () => this.step(-1), on: () => this.step(1), peak: () => this.peak() };
    for (const button of figure.querySelectorAll("[data-do]")) button.addEventListener("click", actions[button.dataset.do]);
    this.choice("variant").addEventListener("change", () => { this.repeats(); this.load(); });
    this.choice("repeat").addEventListener("change", () => this.load());
    this.choice("way").addEventListener("change", (event) => this.watch(event.target.value === "" ? null : Number(event.target.value)));
    range.addEventListener("input", () => { this.stop(); this.show(Number(range.value)); });
    svg.addEventListener("keydown", (event) => this.key(event));
    svg.addEventListener("pointermove", (event) => this.hover(event));
    svg.addEventListener("pointerleave", () => { this.tip.hidden = true; this.hovered = null; });
    svg.addEventListener("click", (event) => {
      const way = event.target.closest("[data-way]");
      this.watch(way ? Number(way.dataset.way) : null);
    });
    const seek = (event) => {
      const box = strip.getBoundingClientRect();
      this.stop();
      this.show(Math.floor(((event.clientX - box.left) / box.width) * this.film.frames));
    };
    strip.addEventListener("pointerdown", (event) => { strip.setPointerCapture(event.pointerId); seek(event); });
    strip.addEventListener("pointermove", (event) => { if (event.buttons & 1) seek(event); });
  }

  async load() {
    const [variant, repeat] = [Number(this.choice("variant").value), Number(this.choice("repeat").value)];
    const film = this.plots.films.find((f) => f.variant === variant && f.repeat === repeat);
    const layout = this.plots.layouts[film.layout];
    if (!this.made.has(film)) {
      const cells = await unpack(film, layout.ways.length);
      this.made.set(film, { cells, sums: sums(film, cells, layout) });
    }
    Object.assign(this, this.made.get(film), { film });
    if (this.layout !== layout) this.build(layout);
    this.range.max = film.frames - 1;
    this.drawStrip();
    this.show(this.frame);
    this.figure.dataset.ready = `${variant}/${repeat}`;
  }

  name(way) {
    const { nodes, ways } = this.layout;
    return `${nodes[ways[way].from].name} → ${nodes[ways[way].to].name}`;
  }

  /** Everything that does not move, and what does in its first state. */
  build(layout) {
    this.layout = layout;
    this.shown = false;
    this.svg.setAttribute("viewBox", `0 0 ${layout.width} ${layout.height}`);
    this.svg.style.maxHeight = `${Math.max(420, layout.height)}px`;
    this.signs = layout.ways.map((way, number) => this.waySigns(way, number));
    this.areas = layout.ways.map((way, number) => this.buildArea(way, number));
    this.paths = this.buildPaths();
    const { loads, pauses, fills, discs, bars, crosses } = this.paths;
    const troughs = layout.ways.map(({ bar }) => `M${bar[0]} ${bar[1]}L${bar[2]} ${bar[3]}`).join("");
    const trough = svgNode("path", { class: "trough", d: troughs, "stroke-width": layout.ways[0]?.bar_width ?? 0 });
    const group = (name, nodes) => svgNode("g", { class: name }, ...nodes);
    this.svg.replaceChildren(
      group("wires", [...loads, ...pauses]),
      group("ways", this.areas.map((a) => a.link)),
      group("nodes", layout.nodes.map((node, number) => this.buildNode(node, number))),
      group("queues", [trough, ...fills]),
      group("bars", this.areas.map((a) => a.bar)),
      group("marks", [...discs, ...bars, crosses]),
    );
    const options = layout.ways.map((_, number) => new Option(this.name(number), number));
    this.choice("way").replaceChildren(new Option("–", ""), ...options);
    this.watch(null);
  }

  /** The paths that change, by what they show. */
  buildPaths() {
    const { line, ways } = this.layout;
    const steps = (count, attributes) => Array.from({ length: count }, (_, step) => svgNode("path", attributes(step)));
    const strength = (step) => (0.4 + (0.6 * (step + 1)) / PAUSE_STEPS).toFixed(2);
    const width = ways[0]?.bar_width ?? 0;
    return {
      loads: steps(LOAD_STEPS, (step) => {
        const load = step / (LOAD_STEPS - 1);
        return { class: "wire", "stroke-width": (0.7 + load * (line - 0.7)).toFixed(2), "stroke-opacity": (step ? 0.3 + 0.7 * load : 0.2).toFixed(2) };
      }),
      pauses: steps(PAUSE_STEPS, (step) => ({ class: "pause", "stroke-width": line, "stroke-opacity": strength(step) })),
      discs: steps(PAUSE_STEPS, (step) => ({ class: "pause-disc", opacity: strength(step) })),
      bars: steps(PAUSE_STEPS, (step) => ({ class: "pause-sign", opacity: strength(step) })),
      fills: steps(2, (step) => ({ class: step ? "fill nearly-full" : "fill", "stroke-width": width })),
      crosses: svgNode("path", { class: "cross" }),
    };
  }

  /** The path data of a direction: its line, two parts of its pause sign, its cross for drops. */
  waySigns(way, number) {
    const [x1, y1, x2, y2] = way.line;
    const [bx, by] = way.bar;
    // Near the sender, and one link's signs beside another's at different heights.
    const along = 0.22 + 0.07 * (number % 5);
    const [sx, sy] = [x1 + (x2 - x1) * along, y1 + (y2 - y1) * along];
    const r = Math.max(5, this.layout.line);
    const [cx, cy, s] = [bx + (x2 - x1) * 0.04, by + (y2 - y1) * 0.04, 5.5];
    return {
      line: `M${x1} ${y1}L${x2} ${y2}`,
      disc: `M${sx - r} ${sy}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`,
      bars: `M${sx - r * 0.3} ${sy - r * 0.45}v${r * 0.9}M${sx + r * 0.3} ${sy - r * 0.45}v${r * 0.9}`,
      cross: `M${cx - s} ${cy - s}l${2 * s} ${2 * s}M${cx + s} ${cy - s}l${-2 * s} ${2 * s}`,
    };
  }

  /** Where the pointer finds a direction: at its line and its queue. */
  buildArea(way, number) {
    const [x1, y1, x2, y2] = way.line;
    const [bx, by, fx, fy] = way.bar;
    const reach = { class: "reach", "data-way": number };
    return {
      link: svgNode("line", { ...reach, class: "way reach", x1, y1, x2, y2, "stroke-width": this.layout.line + 4 }),
      bar: svgNode("line", { ...reach, x1: bx, y1: by, x2: fx, y2: fy, "stroke-width": way.bar_width + 2 }),
    };
  }

  buildNode(node, number) {
    const shape = node.round
      ? svgNode("circle", { cx: node.x, cy: node.y, r: node.w / 2 })
      : svgNode("rect", { x: node.x - node.w / 2, y: node.y - node.h / 2, width: node.w, height: node.h, rx: 4 });
    const group = svgNode("g", { class: node.host ? "node host" : "node switch", "data-node": number }, shape);
    const label = this.label(node);
    if (label) group.append(label);
    return group;
  }

  /** A name where there is room for it: in a switch; below a host, or outside the circle of hosts; else on its side. */
  label(node) {
    const wide = node.name.length * LETTER;
    if (!node.host) {
      const above = node.round && node.w < wide;
      const at = { x: node.x, y: node.round ? node.y + (above ? node.h / 2 + 13 : 4) : node.y + this.nameOffset(node) };
      return svgNode("text", { ...at, class: "name" }, node.name);
    }
    if (node.round) {
      const [dx, dy] = [node.x - this.layout.width / 2, node.y - this.layout.height / 2];
      const far = Math.hypot(dx, dy) || 1;
      const anchor = dx > 30 ? "start" : dx < -30 ? "end" : "middle";
      const at = { x: node.x + (dx / far) * 16, y: node.y + (dy / far) * 20 + 4 };
      return svgNode("text", { ...at, class: "name", style: `text-anchor:${anchor}` }, node.name);
    }
    const y = node.y + node.h / 2;
    if (node.room >= wide) return svgNode("text", { x: node.x, y: y + 13, class: "name" }, node.name);
    if (node.room < 8) return null;
    const size = `font-size:${Math.min(9.5, node.room)}px`;
    return svgNode("text", { class: "name on-side", style: size, transform: `translate(${node.x + 3.5} ${y + 4}) rotate(-90)` }, node.name);
  }

  /** Between queues from above and below; where there is one side only, at the other. */
  nameOffset(node) {
    const ends = this.layout.ways.filter((way) => this.layout.nodes[way.from] === node).map((way) => way.bar);
    if (this.layout.kind === "row") return -node.h / 2 + 15;
    const above = ends.some((bar) => bar[3] > bar[1]);
    return above ? 4 : -node.h / 2 + 13;
  }

  /** Shows a frame. */
  show(wanted) {
    const { film, areas } = this;
    const frame = Math.max(0, Math.min(film.frames - 1, wanted));
    const drawn = new Map();
    for (let way = 0; way < areas.length; way++) this.drawWay(way, way * film.frames + frame, drawn);
    const { crosses, ...rows } = this.paths;
    for (const path of [crosses, ...Object.values(rows).flat()]) path.setAttribute("d", (drawn.get(path) ?? []).join(""));
    this.frame = frame;
    this.shown = true;
    this.range.value = frame;
    this.figure.dataset.frame = frame;
    this.say();
  }

  /** Adds a direction to the paths that have it in this frame. */
  drawWay(way, at, drawn) {
    const { cells, film, paths } = this;
    const [signs, { classList }] = [this.signs[way], this.areas[way].link];
    const add = (path, d) => { if (drawn.has(path)) drawn.get(path).push(d); else drawn.set(path, [d]); };
    const [load, queue, paused, drops] = [cells.load[at] / FULL_LOAD, cells.queue[at] / FULL_QUEUE, cells.paused[at], cells.drops[at]];
    if (paused) {
      const step = Math.ceil((PAUSE_STEPS * paused) / ALL_PAUSED) - 1;
      add(paths.pauses[step], signs.line);
      add(paths.discs[step], signs.disc);
      add(paths.bars[step], signs.bars);
    } else {
      add(paths.loads[Math.min(LOAD_STEPS - 1, Math.ceil(load * (LOAD_STEPS - 1)))], signs.line);
    }
    if (queue) {
      const [x, y, fx, fy] = this.layout.ways[way].bar;
      const full = film.limited[way] && queue > NEARLY_FULL;
      add(paths.fills[full ? 1 : 0], `M${x} ${y}l${((fx - x) * queue).toFixed(1)} ${((fy - y) * queue).toFixed(1)}`);
    }
    if (drops) add(paths.crosses, signs.cross);
    classList.toggle("paused", paused > 0);
    classList.toggle("dropped", drops > 0);
  }

  seconds(frame) { return (frame + 1) * this.film.interval_s; }

  /** Figures of one direction in the frame that is shown. */
  figures(way) {
    const { film, cells, frame } = this;
    const at = way * film.frames + frame;
    const load = cells.load[at] / FULL_LOAD;
    const scale = film.scale_bytes[way];
    const bytes = withUnit("bytes", (cells.queue[at] / FULL_QUEUE) * scale);
    const limit = film.limited[way] ? ` of ${withUnit("bytes", scale)} (${digits((100 * cells.queue[at]) / FULL_QUEUE)} %)` : "";
    return [
      ["load", `${digits(100 * load)} % of ${withUnit("bps", film.rate_bps[way])}`],
      ["queue", bytes + limit],
      ["paused", `${digits((100 * cells.paused[at]) / ALL_PAUSED)} % of the frame`],
      ["drops", String(cells.drops[at])],
    ];
  }

  /** The line below: time and totals, what is watched, the tip. */
  say() {
    const { film, frame, sums: all } = this;
    const end = film.frames * film.interval_s * 1e6;
    const unit = unitFor("us", end);
    const time = ((this.seconds(frame) * 1e6) / unit.scale).toFixed(end / unit.scale >= 100 ? 1 : 2);
    this.figure.querySelector(".time").textContent = `${time} ${unit.symbol}`;
    this.range.setAttribute("aria-valuetext", `${time} ${unit.symbol}, frame ${frame + 1} of ${film.frames}`);
    const counted = [`frame ${frame + 1} of ${film.frames}`, `${all.paused[frame]} directions paused`,
      `${withUnit("bytes", all.queued[frame])} queued in switches`, `${all.drops[frame]} drops`];
    const watched = this.way === null ? [] : [this.name(this.way), ...this.figures(this.way).map(([k, v]) => `${k} ${v}`)];
    this.now.replaceChildren(counted.join(" · "), ...(watched.length ? [document.createElement("br"), watched.join(" · ")] : []));
    const x = ((frame + 0.5) / film.frames) * 1000;
    this.cursor?.setAttribute("d", `M${x} 0V100`);
    if (!this.tip.hidden && this.hovered) this.fillTip();
  }

  watch(way) {
    this.areas[this.way]?.link.classList.remove("watched");
    this.way = way;
    this.areas[way]?.link.classList.add("watched");
    this.choice("way").value = way ?? "";
    if (this.shown) this.say();
  }

  hover(event) {
    const target = event.target.closest("[data-way], [data-node]");
    this.hovered = target;
    this.tip.hidden = !target;
    if (!target) return;
    this.fillTip();
    const stage = this.tip.parentElement.getBoundingClientRect();
    const [x, y] = [event.clientX - stage.left, event.clientY - stage.top];
    const [w, h] = [this.tip.offsetWidth, this.tip.offsetHeight];
    this.tip.style.left = `${Math.max(0, Math.min(x + 14, stage.width - w))}px`;
    this.tip.style.top = `${y + 18 + h > stage.height ? Math.max(0, y - h - 12) : y + 18}px`;
  }

  fillTip() {
    const { way, node } = this.hovered.dataset;
    const rows = way === undefined ? this.nodeFigures(Number(node)) : this.figures(Number(way));
    const heading = way === undefined ? this.layout.nodes[node].name : this.name(way);
    const row = ([name, value]) => `<tr><td>${escapeHtml(name)}</td><td>${escapeHtml(value)}</td></tr>`;
    this.tip.innerHTML = `<strong>${escapeHtml(heading)}</strong><table>${rows.map(row).join("")}</table>`;
  }

  /** Sums over all ports of a node, as rows of a table. */
  nodeFigures(node) {
    const { film, cells, frame, layout } = this;
    let [queued, paused, drops, ports] = [0, 0, 0, 0];
    layout.ways.forEach((way, number) => {
      if (way.from !== node) return;
      const at = number * film.frames + frame;
      ports += 1;
      queued += (cells.queue[at] / FULL_QUEUE) * film.scale_bytes[number];
      paused += cells.paused[at] > 0;
      drops += cells.drops[at];
    });
    return [["queued", withUnit("bytes", queued)], ["ports paused", `${paused} of ${ports}`], ["drops", String(drops)]];
  }

  /** Steps of a sum over time in a lane from `top` to `bottom`. */
  lane(values, top, bottom) {
    const most = values.reduce((a, b) => Math.max(a, b), 0) || 1;
    const width = 1000 / values.length;
    let d = `M0 ${bottom}`;
    values.forEach((value, frame) => {
      d += `V${(bottom - ((bottom - top) * value) / most).toFixed(1)}H${((frame + 1) * width).toFixed(2)}`;
    });
    return `${d}V${bottom}Z`;
  }

  drawStrip() {
    const { sums: all, film, strip } = this;
    const width = 1000 / film.frames;
    let ticks = "";
    all.drops.forEach((count, frame) => { if (count) ticks += `M${((frame + 0.5) * width).toFixed(2)} 92V100`; });
    this.cursor = svgNode("path", { class: "cursor" });
    const most = (values) => values.reduce((a, b) => Math.max(a, b), 0);
    const pauses = most(all.paused) > 0;
    strip.replaceChildren(
      ...(pauses ? [svgNode("path", { class: "lane-paused", d: this.lane(all.paused, 3, 42) })] : []),
      svgNode("path", { class: "lane-queued", d: this.lane(all.queued, pauses ? 50 : 6, 90) }),
      svgNode("path", { class: "lane-drops", d: ticks }),
      svgNode("path", { class: "lane-edges", d: pauses ? "M0 42.5H1000M0 90.5H1000" : "M0 90.5H1000" }),
      this.cursor,
    );
    const named = [pauses ? `paused directions, at most ${most(all.paused)}` : "no direction was paused",
      `bytes queued in switches, at most ${withUnit("bytes", most(all.queued))}`, `drops: ${all.drops.reduce((a, b) => a + b, 0)}`];
    this.figure.querySelector(".strip-names").replaceChildren(...named.map((text) => {
      const name = document.createElement("span");
      name.textContent = text;
      return name;
    }));
  }

  step(by) {
    this.stop();
    this.show(this.frame + by);
  }

  /** The moment with the most paused directions; of these, or where none is, with the most bytes queued. */
  peak() {
    const { paused, queued } = this.sums;
    let best = 0;
    queued.forEach((bytes, frame) => {
      const more = paused[frame] - paused[best];
      if (more > 0 || (more === 0 && bytes > queued[best])) best = frame;
    });
    this.stop();
    this.show(best);
  }

  key(event) {
    const count = this.layout?.ways.length;
    const choose = (by) => this.watch(this.way === null ? (by > 0 ? 0 : count - 1) : (this.way + by + count) % count);
    const actions = {
      " ": () => this.toggle(), ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1),
      Home: () => this.step(-Infinity), End: () => this.step(Infinity),
      ArrowDown: () => choose(1), ArrowUp: () => choose(-1), Escape: () => this.watch(null),
    };
    if (!count || !actions[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    actions[event.key]();
  }

  toggle() {
    if (this.playing !== null) return this.stop();
    if (this.frame >= this.film.frames - 1) this.show(0);
    this.mode(true);
    let [last, due] = [performance.now(), 0];
    const turn = (now) => {
      due += ((now - last) / 1000) * Number(this.choice("speed").value);
      last = now;
      const by = Math.floor(due);
      due -= by;
      if (by > 0) this.show(this.frame + by);
      if (this.frame >= this.film.frames - 1) return this.stop();
      this.playing = requestAnimationFrame(turn);
    };
    this.playing = requestAnimationFrame(turn);
  }

  stop() {
    if (this.playing === null) return;
    cancelAnimationFrame(this.playing);
    this.playing = null;
    this.mode(false);
  }

  /** While the film plays, screen readers do not announce its frames. */
  mode(playing) {
    const button = this.figure.querySelector('[data-do="play"]');
    button.textContent = playing ? "❚❚" : "▶";
    button.setAttribute("aria-label", playing ? "Pause" : "Play");
    this.now.setAttribute("aria-live", playing ? "off" : "polite");
  }
}

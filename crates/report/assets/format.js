// Figures and colours, as the tables have them.

/** [least value, scale, symbol] per quantity, the largest unit first; the base unit last. */
const UNITS = {
  us: [[1e7, 1e6, "s"], [1e4, 1e3, "ms"], [0, 1, "µs"]],
  bps: [[1e9, 1e9, "Gb/s"], [1e6, 1e6, "Mb/s"], [1e3, 1e3, "kb/s"], [0, 1, "b/s"]],
  bytes: [[1e9, 1e9, "GB"], [1e6, 1e6, "MB"], [1e3, 1e3, "KB"], [0, 1, "B"]],
  none: [[0, 1, ""]],
};

/** The unit of `quantity` for an axis or a figure that reaches `largest`. */
function unitFor(quantity, largest) {
  const [, scale, symbol] = UNITS[quantity].find(([least]) => largest >= least) ?? UNITS[quantity].at(-1);
  return { scale, symbol };
}

/** Three significant digits, without an exponent. */
function digits(value) {
  const magnitude = Math.abs(value);
  if (magnitude === 0) return "0";
  if (magnitude >= 99.95) return value.toFixed(0);
  if (magnitude >= 9.995) return value.toFixed(1);
  return magnitude >= 0.9995 ? value.toFixed(2) : value.toFixed(3);
}

/** A value of `quantity` with the unit that suits it alone. */
function withUnit(quantity, value) {
  const unit = unitFor(quantity, Math.abs(value));
  return `${digits(value / unit.scale)} ${unit.symbol}`.trim();
}

/** A number as an axis shows it: three significant digits at most, no trailing zeros. */
function tick(value) {
  return Math.abs(value) >= 1000 ? value.toFixed(0) : String(Number(value.toPrecision(3)));
}

function escapeHtml(text) {
  const entities = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  return text.replace(/[&<>"']/g, (c) => entities[c]);
}

/** Colours of the page as it is shown now. */
function theme() {
  const css = getComputedStyle(document.documentElement);
  const colour = (name) => css.getPropertyValue(name).trim();
  const palette = (letter) => Array.from({ length: 8 }, (_, i) => colour(`--${letter}${i}`));
  return {
    text: colour("--text"), faint: colour("--faint"), line: colour("--line"), raised: colour("--raised"),
    variants: palette("v"), flows: palette("f"), font: getComputedStyle(document.body).fontFamily,
  };
}

/** Beyond eight, variants repeat the colours with another dash. */
const DASHES = ["solid", "dashed", "dotted"];
function variantStyle(look, index) {
  return { color: look.variants[index % 8], type: DASHES[Math.floor(index / 8) % DASHES.length] };
}

// Elements and numbers as text, for every page.

// An element with attributes, listeners ("onclick") and children; text always becomes a text node, never HTML.
function el(tag, attributes = {}, ...children) {
  return dress(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return dress(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function dress(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined && child !== false) element.append(child);
  return element;
}

// ---- numbers ----

function number(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000 || Number.isInteger(value)) return Math.round(value).toLocaleString("en-US");
  if (size < 1e-4) return value.toExponential(2);
  return value.toFixed(Math.max(0, 2 - Math.floor(Math.log10(size))));
}

const factor = (value) => (value >= 100 || value < 0.01 ? number(value) : value.toFixed(2)) + "\u00d7";
const runtime = (ms) => (ms < 0.1 ? number(ms * 1000) + " \u00b5s" : number(ms) + " ms");
const percent = (value) => number(100 * value) + "%";

function scaled(value, step, units) {
  let unit = 0;
  while (Math.abs(value) >= step && unit < units.length - 1) { value /= step; unit++; }
  return number(value) + " " + units[unit];
}

function quantity(name, value) {
  if (name.includes("bytes") || name === "shared_memory") return scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
  if (name === "flops") return scaled(value, 1000, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"]);
  if (name === "occupancy" || name === "roofline") return percent(value);
  if (name === "error") return value.toExponential(2);
  if (name.endsWith("_ms")) return runtime(value);
  return number(value);
}

// "Less is better" where +1, "more is better" where -1; a metric that is not here has no better or worse.
const LESS_IS_BETTER = {
  bytes_moved: 1, kernels: 1, launches: 1, spills: 1, error: 1, device_ms: 1, host_ms: 1, call_ms: 1, occupancy: -1, roofline: -1,
};

const KIND_NOTE = {
  measured: "measured on a device",
  estimated: "estimated by a model of the hardware, not timed",
  mixed: "the root and this version were not timed in the same way",
};
const SHORT_KIND = { measured: "meas.", estimated: "est.", mixed: "mixed" };

function kindTag(kind) {
  return kind ? el("span", { class: "kind " + kind, title: KIND_NOTE[kind] }, kind) : null;
}

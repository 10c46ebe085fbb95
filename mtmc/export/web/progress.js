// The strip below the tree: best speedup so far against evaluations; every evaluation is a mark that can be clicked.

const progress = document.getElementById("progress");
const STRIP = { left: 44, right: 14, top: 22, bottom: 22, height: 136 };
const MANY = 400;

let against = "evaluations"; // which of `AXES`

// The axes that differ from each other: a run from disk has no times, and one without a model no costs.
const axesOf = () => Object.keys(AXES).filter((name) => name === "evaluations" || (RUN[name] && RUN[name][RUN[name].length - 1] > 0));

function drawProgress() {
  progress.replaceChildren();
  if (!RUN.evaluations.length || progress.clientHeight === 0) return;
  const width = progress.clientWidth, { left, right, top, bottom, height } = STRIP;
  const values = against === "evaluations" ? RUN.evaluations.map((_, index) => index + 1) : RUN[against];
  const most = Math.max(values[values.length - 1], 1e-9);
  const curve = bestSoFar();
  const gains = RUN.evaluations.map((id) => NODES[id].speedup).filter((gain) => gain !== undefined);
  // A few very slow versions must not flatten the rest: the scale ends at an eighth of the root's speed.
  const low = Math.log2(Math.max(0.125, least(gains, 1))), high = Math.log2(Math.max(1.1, greatest(gains, 1)));
  const failBand = RUN.evaluations.some((id) => NODES[id].speedup === undefined) ? 14 : 0;
  const x = (value) => left + (width - left - right) * value / most;
  const y = (gain) => {
    const share = (Math.max(low, Math.log2(gain)) - low) / (high - low);
    return height - bottom - failBand - 4 - share * (height - top - bottom - failBand - 8);
  };
  const picture = svg("svg", { width, height, role: "img", "aria-label": `best speedup so far against ${against}` });
  picture.append(...grid(low, high, y, width), ...steps(against, most, width / 90).map((step) =>
    svg("text", { x: x(step), y: height - 6, class: "step" }, AXES[against].text(step))));
  const marks = RUN.evaluations.map((id, index) => mark(NODES[id], index, x(values[index]), y, height - bottom - 6));
  const many = marks.length > MANY; // then the line stands over the marks, else it would drown in them
  const line = svg("path", { class: "curve", d: curvePath(curve, values, x, y) });
  const all = svg("g", { class: many ? "many" : "" }, marks);
  const best = marks.filter((_, index) => RUN.evaluations[index] === RUN.best);
  picture.append(...(many ? [all, line] : [line, all]), ...best);
  const kinds = [...new Set(RUN.evaluations.map((id) => NODES[id].speedup_kind).filter(Boolean))];
  picture.append(svg("text", { x: left, y: 15, class: "caption" }, `Best speedup so far (${kinds.join(" and ") || "no runtimes"})`));
  const buttons = axisButtons(axesOf(), against, (name) => { against = name; drawProgress(); });
  progress.append(picture, ...(buttons ? [buttons] : []));
}

const least = (values, start) => values.reduce((a, b) => Math.min(a, b), start);
const greatest = (values, start) => values.reduce((a, b) => Math.max(a, b), start);

function grid(low, high, y, width) {
  return gainTicks(2 ** low, 2 ** high).map((gain) => svg("g", { class: gain === 1 ? "grid even" : "grid" },
    svg("line", { x1: STRIP.left, x2: width - STRIP.right, y1: y(gain), y2: y(gain) }),
    svg("text", { x: STRIP.left - 6, y: y(gain) + 3.5 }, `${gain}\u00d7`)));
}

function curvePath(curve, values, x, y) {
  let path = "";
  curve.forEach((best, index) => {
    if (best === null) return;
    path += path ? `H${x(values[index])}V${y(best)}` : `M${x(0)} ${y(1)}H${x(values[index])}V${y(best)}`;
  });
  return path;
}

function mark(node, index, at, y, floor) {
  const failed = node.speedup === undefined;
  const title = svg("title", {}, `${index + 1}: #${node.id} ${kindOf(node)}, ${resultOf(node)} ${node.speedup_kind || ""}`);
  const small = RUN.evaluations.length > MANY ? 1.6 : 3;
  const shape = failed
    ? svg("path", { d: `M${at - small} ${floor - small}l${2 * small} ${2 * small}m0 ${-2 * small}l${-2 * small} ${2 * small}` })
    : svg("circle", { cx: at, cy: y(node.speedup), r: node.id === RUN.best ? 4.5 : small });
  const now = node.id === selected ? " now" : "";
  const best = node.id === RUN.best ? " best" : "";
  return svg("g", { class: `mark ${toneOf(node)}${now}${best}`, "data-id": node.id, onclick: () => select(node.id) }, title, shape);
}

function markProgress() {
  for (const element of progress.querySelectorAll(".mark")) {
    element.classList.toggle("now", element.getAttribute("data-id") === String(selected));
  }
}

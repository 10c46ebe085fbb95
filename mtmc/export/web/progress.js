// The strip below the tree: best speedup so far against evaluations; every evaluation is a mark that can be clicked.

const progress = document.getElementById("progress");
const STRIP = { left: 44, right: 14, top: 22, bottom: 22, height: 136 };
const MANY = 400;

function drawProgress() {
  progress.replaceChildren();
  if (!RUN.evaluations.length || progress.clientHeight === 0) return;
  const width = progress.clientWidth, { left, right, top, bottom, height } = STRIP;
  const curve = bestSoFar();
  const gains = RUN.evaluations.map((id) => NODES[id].speedup).filter((gain) => gain !== undefined);
  // A few very slow versions must not flatten the rest: the scale ends at an eighth of the root's speed.
  const low = Math.log2(Math.max(0.125, Math.min(1, ...gains))), high = Math.log2(Math.max(1.1, ...gains));
  const failBand = RUN.evaluations.some((id) => NODES[id].speedup === undefined) ? 14 : 0;
  const x = (step) => left + (width - left - right) * step / RUN.evaluations.length;
  const y = (gain) => {
    const share = (Math.max(low, Math.log2(gain)) - low) / (high - low);
    return height - bottom - failBand - 4 - share * (height - top - bottom - failBand - 8);
  };
  const picture = svg("svg", { width, height, role: "img", "aria-label": "best speedup so far against evaluations" });
  picture.append(...grid(low, high, y, width), ...steps(x, height, width));
  const marks = RUN.evaluations.map((id, index) => mark(NODES[id], index, x, y, height - bottom - 6));
  const many = marks.length > MANY; // then the line stands over the marks, else it would drown in them
  const line = svg("path", { class: "curve", d: curvePath(curve, x, y) });
  const all = svg("g", { class: many ? "many" : "" }, marks);
  const best = marks.filter((_, index) => RUN.evaluations[index] === RUN.best);
  picture.append(...(many ? [all, line] : [line, all]), ...best);
  const kinds = [...new Set(RUN.evaluations.map((id) => NODES[id].speedup_kind).filter(Boolean))];
  picture.append(svg("text", { x: left, y: 15, class: "caption" }, `Best speedup so far (${kinds.join(" and ") || "no runtimes"})`));
  progress.append(picture);
}

function grid(low, high, y, width) {
  return ticks(2 ** low, 2 ** high).map((gain) => svg("g", { class: gain === 1 ? "grid even" : "grid" },
    svg("line", { x1: STRIP.left, x2: width - STRIP.right, y1: y(gain), y2: y(gain) }),
    svg("text", { x: STRIP.left - 6, y: y(gain) + 3.5 }, `${gain}\u00d7`)));
}

// Powers of two over a wide range, round steps over a narrow one.
function ticks(low, high) {
  const result = [];
  if (high / low >= 3.5) {
    const step = high / low > 40 ? 4 : 2;
    for (let gain = 2 ** -20; gain <= high; gain *= step) if (gain >= low) result.push(gain);
    return result;
  }
  const step = [0.05, 0.1, 0.2, 0.5].find((size) => (high - low) / size <= 5) || 1;
  for (let count = Math.ceil(low / step); count * step <= high; count++) result.push(Number((count * step).toFixed(2)));
  return result;
}

function steps(x, height, width) {
  const count = RUN.evaluations.length;
  const every = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].find((size) => count / size <= width / 70) || 10000;
  const labels = [];
  for (let step = 0; step <= count; step += every) labels.push(svg("text", { x: x(step), y: height - 6, class: "step" }, step));
  return labels;
}

function curvePath(curve, x, y) {
  let path = "";
  curve.forEach((best, index) => {
    if (best === null) return;
    path += path ? `H${x(index + 1)}V${y(best)}` : `M${x(0)} ${y(1)}H${x(index + 1)}V${y(best)}`;
  });
  return path;
}

function mark(node, index, x, y, floor) {
  const at = x(index + 1);
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

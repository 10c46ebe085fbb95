// Curves of best speedup so far, one for each run or set of runs.

const PLOT = { left: 52, right: 18, top: 26, bottom: 30, height: 330 };
const AXIS_NAMES = Object.keys(AXES);
const COLOURS = 10; // classes c0 to c9 of the style

// series: {name, colour, id, points: by name of `AXES` rows [where, speedup] or [where, speedup, low, high]}. now: the axis.
function drawCurves(place, series, now, choose) {
  const some = series.filter((each) => each.points[now].length);
  place.replaceChildren();
  if (!some.length) { place.append(el("p", { class: "empty" }, "No run has a speedup yet.")); return; }
  const width = place.clientWidth, { left, right, top, bottom, height } = PLOT;
  const end = (name) => some.reduce((most, { points }) => Math.max(most, points[name] ? points[name][points[name].length - 1][0] : 0), 0);
  const most = Math.max(end(now), 1e-9);
  const high = Math.log2(some.reduce((top, { points }) => points[now].reduce((above, row) => Math.max(above, row[3] ?? row[1]), top), 1.1));
  const x = (value) => left + (width - left - right) * value / most;
  const y = (gain) => height - bottom - Math.min(1.05, Math.max(0, Math.log2(gain) / high)) * (height - top - bottom);
  const picture = svg("svg", { width, height, role: "img", "aria-label": `best speedup so far against ${now}` },
    gainTicks(1, 2 ** high).map((gain) => svg("g", { class: gain === 1 ? "grid even" : "grid" },
      svg("line", { x1: left, x2: width - right, y1: y(gain), y2: y(gain) }), svg("text", { x: left - 6, y: y(gain) + 3.5 }, `${gain}\u00d7`))),
    steps(now, most, width / 110).map((step) => svg("text", { x: x(step), y: height - 10, class: "step" }, AXES[now].text(step))),
    some.filter((each) => each.points[now][0].length > 2).map((each) => svg("path", { class: `band c${each.colour % COLOURS}`, "data-id": each.id, d: area(each.points[now], x, y) })),
    some.map((each) => svg("path", { class: `series c${each.colour % COLOURS}`, "data-id": each.id, d: stairs(each.points[now], x, y) }, svg("title", {}, each.name))),
    svg("text", { x: left, y: 16, class: "caption" }, "Best speedup so far over the root"));
  const axes = AXIS_NAMES.filter((name) => name === "evaluations" || end(name) > 0);
  place.append(picture, ...[axisButtons(axes, now, choose)].filter(Boolean));
}

function stairs(points, x, y) {
  return points.reduce((path, row) => path + `H${x(row[0])}V${y(row[1])}`, `M${x(0)} ${y(1)}`);
}

function area(points, x, y) {
  const back = points.map((row, at) => [points[at + 1] ? points[at + 1][0] : row[0], row[0], row[2]]).reverse();
  return points.reduce((path, row) => path + `H${x(row[0])}V${y(row[3])}`, `M${x(points[0][0])} ${y(1)}`)
    + back.reduce((path, [to, from, low]) => path + `H${x(to)}V${y(low)}H${x(from)}`, "") + "Z";
}

// The line that the pointer is at, or null.
function markCurve(id) {
  for (const path of document.querySelectorAll(".series, .band")) {
    const own = path.getAttribute("data-id") === id;
    path.classList.toggle("now", own);
    path.classList.toggle("other", id !== null && !own);
  }
}

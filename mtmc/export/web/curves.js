// Curves of best speedup so far, one for each run or set of runs.

const PLOT = { left: 52, right: 18, top: 26, bottom: 30, height: 330 };
const AXIS_NAMES = Object.keys(AXES);
const COLOURS = 10; // classes c0 to c9 of the style

// series: {name, colour, curve: rows [evaluations, seconds, usd, speedup], id}. now: which of `AXES`.
function drawCurves(place, series, now, choose) {
  const column = AXIS_NAMES.indexOf(now);
  const some = series.filter((each) => each.curve.length);
  place.replaceChildren();
  if (!some.length) { place.append(el("p", { class: "empty" }, "No run has a speedup yet.")); return; }
  const width = place.clientWidth, { left, right, top, bottom, height } = PLOT;
  const ends = (at, start) => some.reduce((most, each) => Math.max(most, each.curve[each.curve.length - 1][at]), start);
  const most = Math.max(ends(column, 0), 1e-9), high = Math.log2(ends(3, 1.1));
  const x = (value) => left + (width - left - right) * value / most;
  const y = (gain) => height - bottom - Math.max(0, Math.log2(gain)) / high * (height - top - bottom);
  const picture = svg("svg", { width, height, role: "img", "aria-label": `best speedup so far against ${now}` },
    gainTicks(1, 2 ** high).map((gain) => svg("g", { class: gain === 1 ? "grid even" : "grid" },
      svg("line", { x1: left, x2: width - right, y1: y(gain), y2: y(gain) }), svg("text", { x: left - 6, y: y(gain) + 3.5 }, `${gain}\u00d7`))),
    steps(now, most, width / 110).map((step) => svg("text", { x: x(step), y: height - 10, class: "step" }, AXES[now].text(step))),
    some.map((each) => svg("path", { class: `series c${each.colour % COLOURS}`, "data-id": each.id, d: stairs(each.curve, column, x, y) }, svg("title", {}, each.name))),
    svg("text", { x: left, y: 16, class: "caption" }, "Best speedup so far over the root"));
  const axes = AXIS_NAMES.filter((name, at) => name === "evaluations" || ends(at, 0) > 0);
  place.append(picture, ...[axisButtons(axes, now, choose)].filter(Boolean));
}

function stairs(curve, column, x, y) {
  return curve.reduce((path, row) => path + `H${x(row[column])}V${y(row[3])}`, `M${x(0)} ${y(1)}`);
}

// The runs of a sweep: their curves, and a row for each with what was chosen and what came out.

let DATA = JSON.parse(document.getElementById("run-data").textContent);
const view = { axis: "evaluations", sorted: null, down: true, hidden: new Set(), trouble: "" };
const BROKEN = ["failed", "unreadable"];
const STATES = ["running", "stopped", "ended", "failed", "unreadable"];

const told = (value) => (value === null || value === undefined ? "" : String(value));
const seedAt = () => DATA.names.indexOf("seed");
// Runs that differ by seed only have one colour.
const groupOf = (run) => [run.task, ...run.choices.filter((_, at) => at !== seedAt())].map(told).join(" ");

function columns() {
  const several = new Set(DATA.runs.map((run) => run.task).filter(Boolean)).size > 1;
  const paid = DATA.runs.some((run) => run.usd > 0);
  return [
    ["run", (run) => run.name, (run) => (run.id === null ? run.name : el("a", { href: `/runs/${run.id}/` }, run.name))],
    ...(several ? [["task", (run) => run.task, (run) => told(run.task)]] : []),
    ...DATA.names.map((name, at) => [name, (run) => run.choices[at], (run) => told(run.choices[at])]),
    ["state", (run) => STATES.indexOf(run.state), (run) => [el("span", { class: "state " + run.state, title: told(run.finished) }, run.state),
      BROKEN.includes(run.state) ? el("small", {}, " ", run.finished) : null]],
    ["best", (run) => run.speedup, (run) => (run.speedup === undefined || run.speedup === null ? "" : [factor(run.speedup), " ", kindTag(run.speedup_kind)])],
    ["evaluations", (run) => run.evaluations, (run) => (run.budget ? [el("span", { class: "bar" },
      el("i", { style: { width: Math.min(100, 100 * run.evaluations / run.budget).toFixed(1) + "%" } })), `${run.evaluations} / ${run.budget}`] : "")],
    ["versions", (run) => run.versions, (run) => told(run.versions)],
    ["under way", (run) => (run.trials || []).length, (run) => (run.trials || []).map((trial) => trial.kind).slice(0, 3).join(", ")],
    ["time", (run) => run.seconds, (run) => (run.seconds === undefined ? "" : duration(run.seconds))],
    ...(paid ? [["cost", (run) => run.usd, (run) => (run.usd === undefined ? "" : AXES.usd.text(run.usd))]] : []),
  ];
}

// Rows [evaluations, seconds, USD, speedup] as points of each axis.
const pointsOf = (curve) => Object.fromEntries(AXIS_NAMES.map((name, at) => [name, curve.map((row) => [row[at], row[3]])]));

function inOrder(list) {
  const column = columns().find(([name]) => name === view.sorted);
  if (!column) return list;
  const key = column[1], missing = (value) => value === null || value === undefined;
  return [...list].sort((one, other) => {
    const [a, b] = [key(one), key(other)];
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
    return view.down ? -order : order;
  });
}

function draw() {
  const groups = [...new Set(DATA.runs.map(groupOf))];
  const colourOf = (run) => groups.indexOf(groupOf(run));
  const nameOf = (run) => [run.name, ...DATA.names.map((name, at) => `${name}=${told(run.choices[at])}`)].join(", ");
  drawCurves(document.getElementById("curves"), DATA.runs.filter((run) => !view.hidden.has(run.name)).map((run) => (
    { name: nameOf(run), colour: colourOf(run), id: run.name, points: pointsOf(run.curve) })), view.axis, (name) => { view.axis = name; draw(); });
  const heads = columns();
  const sortBy = (name) => { view.down = view.sorted === name ? !view.down : true; view.sorted = name; draw(); };
  const body = inOrder(DATA.runs).map((run) => el("tr", {
    class: view.hidden.has(run.name) ? "hidden" : "", onpointerenter: () => markCurve(run.name), onpointerleave: () => markCurve(null),
  }, el("td", {}, el("button", { type: "button", class: `swatch c${colourOf(run) % COLOURS}`, title: "Show or hide its curve", "aria-label": "show or hide the curve",
    onclick: () => { if (!view.hidden.delete(run.name)) view.hidden.add(run.name); draw(); } })),
  heads.map(([, , cell]) => el("td", {}, cell(run)))));
  document.getElementById("table").replaceChildren(el("table", {},
    el("thead", {}, el("tr", {}, el("th"), heads.map(([name]) => el("th", { "aria-sort": view.sorted === name ? (view.down ? "descending" : "ascending") : null },
      el("button", { type: "button", onclick: () => sortBy(name) }, name))))), el("tbody", {}, body)));
  const counts = STATES.map((state) => [state, DATA.runs.filter((run) => run.state === state).length]).filter(([, count]) => count);
  document.getElementById("task").textContent = DATA.folder;
  document.getElementById("facts").replaceChildren(...[["runs", DATA.runs.length], ...counts].map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
  document.getElementById("state").textContent = view.trouble;
}

async function ask() {
  try {
    const answer = await fetch("/overview", { cache: "no-store" });
    const news = await answer.json();
    if (!answer.ok) throw new Error(news.error);
    const changed = view.trouble || JSON.stringify(news) !== JSON.stringify({ ...DATA, live: undefined });
    DATA = { ...news, live: true };
    view.trouble = "";
    if (changed) draw();
  } catch (error) {
    view.trouble = error instanceof TypeError ? "mtmc watch has ended: this is how the runs stood then" : error.message;
    draw();
  }
  setTimeout(ask, DATA.runs.some((run) => run.state === "running") && !document.hidden ? 2000 : 5000);
}

draw();
addEventListener("resize", draw);
if (DATA.live) setTimeout(ask, 2000);

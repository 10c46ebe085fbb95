// An experiment on recorded trees: curves by strategy for the priors that are chosen, and its tables.

const DATA = JSON.parse(document.getElementById("run-data").textContent);
const POLICIES = [...new Set(DATA.series.map((each) => each.policy))];
const NAMES = [...new Set(DATA.series.map((each) => each.name))];
const BANDS = 6; // lines that are shown with their intervals at most
const shown = { policy: POLICIES[0], axis: "evaluations", hidden: new Set() };

function draw() {
  const mine = DATA.series.filter((each) => each.policy === shown.policy && !shown.hidden.has(each.name));
  const plain = (points) => Object.fromEntries(Object.entries(points).map(([name, rows]) => [name, rows.map((row) => row.slice(0, 2))]));
  drawCurves(document.getElementById("curves"), mine.map((each) => ({
    name: each.name, id: each.name, colour: NAMES.indexOf(each.name), points: mine.length > BANDS ? plain(each.points) : each.points,
  })), shown.axis, (name) => { shown.axis = name; draw(); });
  document.getElementById("policies").replaceChildren("Priors: ", ...POLICIES.map((policy) => el("button", {
    type: "button", class: "tool", "aria-pressed": String(policy === shown.policy), onclick: () => { shown.policy = policy; draw(); },
  }, policy)));
  document.getElementById("key").replaceChildren(...NAMES.map((name, at) => el("button", {
    type: "button", class: `chip c${at % COLOURS}`, "aria-pressed": String(!shown.hidden.has(name)), title: "Show or hide",
    onpointerenter: () => markCurve(name), onpointerleave: () => markCurve(null),
    onclick: () => { if (!shown.hidden.delete(name)) shown.hidden.add(name); draw(); },
  }, name)));
}

function drawTables() {
  document.getElementById("table").replaceChildren(...DATA.tables.map(({ title, head, rows }) => el("details", { open: true },
    el("summary", {}, title), el("table", {},
      el("thead", {}, el("tr", {}, head.map((name) => el("th", {}, name)))),
      el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell) => el("td", {}, cell)))))))));
}

document.getElementById("task").textContent = document.title.replace(" - mtmc", "");
document.getElementById("about").textContent = DATA.about;
drawTables();
draw();
addEventListener("resize", draw);

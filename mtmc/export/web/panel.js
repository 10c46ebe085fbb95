// All about the selected version.

const panel = document.getElementById("panel");
// against: what the diff compares with, "parent", "root", "best" or a version's number.
const shownTab = { name: "diff", side: false, marked: null, against: "parent" };
const TABS = [["diff", "Diff"], ["source", "Source"], ["metrics", "Metrics"], ["actions", "Actions"],
  ["model", "Model"]];

function drawPanel() {
  const node = NODES[selected];
  panel.replaceChildren(trail(node), headline(node), tiles(node), ...trouble(node), tabBar(node), tabBody(node));
}

// The way from the root, each step a button.
function trail(node) {
  const steps = [];
  for (let at = node; at; at = at.parent === undefined ? null : NODES[at.parent]) steps.unshift(at);
  return el("nav", { class: "trail", "aria-label": "from the root" }, steps.map((step) => el("button", {
    type: "button", class: `step ${toneOf(step)}${step.id === node.id ? " here" : ""}`, title: sentenceOf(step),
    onclick: () => select(step.id),
  }, kindOf(step), step.speedup === undefined ? null : el("small", {}, factor(step.speedup)))));
}

function headline(node) {
  const action = actionOf(node);
  const params = action ? action.params.map(([name, value]) => el("span", { class: "param" }, `${name} = ${value}`)) : [];
  return el("div", { class: "headline" },
    el("div", { class: "badges" },
      el("span", { class: "id" }, "#" + node.id), el("span", { class: "badge " + toneOf(node) }, words(node.status)),
      node.id === RUN.best && el("span", { class: "badge winner" }, "\u2605 best"),
      node.repairs > 0 && el("span", { class: "badge plain" }, `repaired ${node.repairs}\u00d7`),
      el("code", { class: "hash", title: "hash of the source" }, node.hash)),
    el("h2", {}, sentenceOf(node)), params.length ? el("div", { class: "params" }, params) : null);
}

function tile(name, value, ...notes) {
  return el("div", { class: "tile" }, el("dt", {}, name), el("dd", {}, value), notes.length ? el("div", { class: "note" }, notes) : null);
}

function tiles(node) {
  const list = el("dl", { class: "tiles" });
  if (node.speedup !== undefined) list.append(tile("Speedup over root", factor(node.speedup), kindTag(node.speedup_kind)));
  if (node.runtime_ms !== undefined) {
    const interval = node.runtime_low_ms === undefined || node.runtime_high_ms === undefined ? null
      : el("span", { title: `95% confidence interval, ${node.runtime_trials} timed calls` },
        `${runtime(node.runtime_low_ms)} to ${runtime(node.runtime_high_ms)}`);
    list.append(tile("Runtime", runtime(node.runtime_ms), kindTag(node.runtime_kind), interval));
  }
  const parent = node.parent === undefined ? null : NODES[node.parent];
  if (parent && parent.runtime_ms !== undefined && node.runtime_ms !== undefined) {
    const mixed = parent.runtime_kind !== node.runtime_kind;
    list.append(tile("Over its parent", factor(parent.runtime_ms / node.runtime_ms), kindTag(mixed ? "mixed" : node.runtime_kind)));
  }
  if (node.prior !== undefined) list.append(tile("Prior", percent(node.prior)));
  for (const [name, value] of Object.entries(node.notes)) {
    if (name !== "prior") list.append(tile(words(name).slice(0, 1).toUpperCase() + words(name).slice(1), number(value)));
  }
  if (node.calls > 0) {
    list.append(tile("Model", node.usd > 0 ? `$${node.usd.toFixed(4)}` : "no known price", `${number(node.tokens_in)} in, ${number(node.tokens_out)} out`));
  }
  return list;
}

function trouble(node) {
  const found = node.diagnosis;
  if (!found) return [];
  return [el("div", { class: "trouble " + toneOf(node) },
    el("div", { class: "what" }, el("b", {}, found.kind), ` found by ${found.stage}`,
      found.line !== undefined && found.line !== null && el("button", {
        type: "button", class: "link", onclick: () => openTab("source", [found.line, found.line]),
      }, `line ${found.line}`)),
    el("p", {}, found.message), found.excerpt ? el("pre", {}, found.excerpt) : null)];
}

// ---- tabs ----

function tabOf(node) {
  if (shownTab.name === "diff" && comparedId(node) === undefined) return "source";
  return shownTab.name === "model" && !node.turns ? "diff" : shownTab.name;
}

function openTab(name, marked = null) {
  shownTab.name = name;
  shownTab.marked = marked;
  drawPanel();
  const row = marked && panel.querySelector(".row.region, .row.bad");
  if (row) row.scrollIntoView({ block: "center" });
}

function tabBar(node) {
  const now = tabOf(node);
  const counts = { metrics: Object.keys(node.metrics).length, actions: node.legal.length, model: (node.turns || []).length };
  const buttons = TABS.filter(([name]) => name !== "model" || node.turns).map(([name, label], index) => el("button", {
    type: "button", role: "tab", "aria-selected": String(name === now), disabled: name === "diff" && comparedId(node) === undefined,
    title: `${label} (${index + 1})`, onclick: () => openTab(name),
  }, label, counts[name] === undefined ? null : el("small", {}, counts[name])));
  const tools = [];
  if (now === "diff") {
    tools.push(el("button", { type: "button", class: "tool", title: "Unified or side by side (s)", onclick: switchSides },
      shownTab.side ? "Unified" : "Side by side"));
  }
  if (now === "source") tools.push(el("button", { type: "button", class: "tool", onclick: (event) => copySource(event, node) }, "Copy"));
  return el("div", { class: "tabs", role: "tablist" }, buttons, el("span", { class: "space" }), tools);
}

function switchSides() {
  shownTab.side = !shownTab.side;
  drawPanel();
}

function copySource(event, node) {
  const button = event.target;
  const said = (text) => { button.textContent = text; };
  if (!navigator.clipboard) return said("Not allowed here");
  return navigator.clipboard.writeText(linesOf(node).join("\n") + "\n").then(() => said("Copied"), () => said("Not allowed here"));
}

function tabBody(node) {
  const now = tabOf(node);
  const body = el("div", { class: "body " + now, role: "tabpanel" });
  if (now === "diff") body.append(versus(node), diffView(NODES[comparedId(node)], node, shownTab.side));
  if (now === "source") body.append(sourceView(node, shownTab.marked));
  if (now === "metrics") body.append(metricsTable(node));
  if (now === "actions") body.append(actionsList(node));
  if (now === "model") body.append(transcript(node));
  return body;
}

// ---- a diff of any two versions ----

function comparedId(node) {
  const named = { parent: node.parent, root: 0, best: RUN.best };
  return shownTab.against in named ? named[shownTab.against] : shownTab.against;
}

function compareWith(against) {
  shownTab.against = against;
  shownTab.name = "diff";
  drawPanel();
  markCompared();
}

// The version that the diff compares with, where it is another than the parent.
function markCompared() {
  const other = shownTab.against === "parent" ? null : comparedId(NODES[selected]);
  for (const [id, element] of view.cards) element.classList.toggle("compared", id === other && id !== selected);
}

function versus(node) {
  const other = comparedId(node);
  const names = node.parent === undefined ? ["root", "best"] : ["parent", "root", "best"];
  const chosen = Number.isInteger(shownTab.against);
  const choices = names.map((name) => el("button", {
    type: "button", class: "tool", "aria-pressed": String(shownTab.against === name), onclick: () => compareWith(name),
  }, name));
  const field = el("input", {
    type: "number", min: 0, max: NODES.length - 1, value: chosen ? other : null, placeholder: "#", "aria-label": "compare with version",
    title: "Any version: its number, or Shift and a click on it in the tree",
    onchange: (event) => {
      const id = event.target.valueAsNumber;
      if (Number.isInteger(id) && id >= 0 && id < NODES.length) compareWith(id);
    },
  });
  return el("div", { class: "versus" }, el("span", {}, `What changes from #${other} to #${node.id}`), el("span", { class: "space" }),
    "compare with", choices, field);
}

function metricsTable(node) {
  const parent = node.parent === undefined ? { metrics: {} } : NODES[node.parent];
  const names = Object.keys(node.metrics);
  if (!names.length) return el("p", { class: "empty" }, "Evaluation left no metrics for this version.");
  const text = (name, from) => (from.metrics[name] === undefined ? "" : quantity(name, from.metrics[name]));
  return el("table", {},
    el("thead", {}, el("tr", {}, ["metric", `#${node.id}`, "parent", "root", "of root"].map((head) => el("th", {}, head)))),
    el("tbody", {}, names.map((name) => el("tr", {}, el("th", {}, words(name)), el("td", { class: "mine" }, text(name, node)),
      el("td", {}, text(name, parent)), el("td", {}, text(name, ROOT)), changeCell(name, node.metrics[name], ROOT.metrics[name])))));
}

function changeCell(name, value, before) {
  if (before === undefined || before === 0) return el("td");
  const better = LESS_IS_BETTER[name] * (before - value);
  const mood = better > 0 ? "better" : better < 0 ? "worse" : "";
  return el("td", { class: "change " + mood }, percent(value / before));
}

// What was said between the coder and its model; what an agent made, said against it and ended with lies open.
function transcript(node) {
  const text = (indices) => indices.map((index) => RUN.lines[index]).join("\n");
  const open = (turn) => turn.role === "agent" && ["", "draft", "critique", "commit", "give_up"].includes(turn.tool);
  const who = { brief: "asked", agent: "model", tool: "answer" };
  return el("div", { class: "transcript" }, node.turns.map((turn, index) => el("details", { class: "turn from-" + turn.role, open: open(turn) },
    el("summary", {}, el("b", {}, `${index + 1}. ${who[turn.role]}`), turn.tool ? ` ${words(turn.tool)}` : "",
      turn.verdict ? el("span", { class: "verdict" + (turn.verdict.startsWith("unusable") ? " worse" : "") }, turn.verdict) : null),
    ["text", "arguments"].filter((name) => turn[name]).map((name) => el("pre", { class: name }, text(turn[name]))))));
}

// Most sentences begin with their kind, which stands before them already.
function withoutKind(action) {
  const start = action.sentence.slice(0, action.kind.length).toLowerCase();
  return start === action.kind.toLowerCase() ? action.sentence.slice(action.kind.length).replace(/^[\s:]+/, "") : action.sentence;
}

function actionsList(node) {
  if (!node.legal.length) return el("p", { class: "empty" }, "No legal actions are recorded: this version was never selected.");
  const most = Math.max(...node.legal.map(([, prior]) => prior)) || 1;
  const ordered = [...node.legal].sort((a, b) => b[1] - a[1]);
  return el("ol", { class: "legal" }, ordered.map(([index, prior]) => {
    const action = RUN.actions[index];
    const taken = node.children.filter((id) => actionOf(NODES[id]) && actionOf(NODES[id]).key === action.key);
    return el("li", { class: taken.length ? "taken" : "" },
      el("span", { class: "share" }, el("i", { style: { width: (100 * prior / most).toFixed(1) + "%" } }), el("b", {}, percent(prior))),
      el("span", { class: "what" }, el("b", {}, action.kind), " ", withoutKind(action)),
      el("button", { type: "button", class: "link", title: "Show the region in the source",
        onclick: () => openTab("source", [action.first, action.last]) },
      action.first === action.last ? `line ${action.first}` : `lines ${action.first}-${action.last}`),
      taken.map((id) => el("button", { type: "button", class: `step ${toneOf(NODES[id])}`, onclick: () => select(id) },
        `#${id} ${resultOf(NODES[id])}`)));
  }));
}

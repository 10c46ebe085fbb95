// Selection, search, filter, keys, theme: what joins the parts of the page.

const search = document.getElementById("search");
const found = document.getElementById("found");
const keys = document.getElementById("keys");

function select(id, centred = false) {
  selected = id;
  live.followed = id === RUN.best && centred; // who goes to the best version goes on with whatever will be the best
  shownTab.marked = null;
  reveal(id);
  markSelected();
  markProgress();
  drawPanel();
  panel.scrollTop = 0;
  if (centred) centre(id); else bringIntoSight(id);
  if (location.hash !== "#" + id) location.hash = id;
}

function fromAddress() {
  const id = Number(location.hash.slice(1));
  return location.hash.length > 1 && Number.isInteger(id) && id >= 0 && id < NODES.length ? id : null;
}

// ---- header and legend ----

function drawHeader() {
  const best = NODES[RUN.best];
  const settings = new Map(RUN.settings);
  const facts = [];
  if (best.speedup !== undefined) facts.push(["Best", factor(best.speedup), kindTag(best.speedup_kind)]);
  if (best.runtime_ms !== undefined && ROOT.runtime_ms !== undefined) {
    const kind = best.runtime_kind === ROOT.runtime_kind ? best.runtime_kind : "mixed";
    facts.push(["Runtime", `${runtime(ROOT.runtime_ms)} \u2192 ${runtime(best.runtime_ms)}`, kindTag(kind)]);
  }
  facts.push(["Versions", NODES.length.toLocaleString("en-US")], ["Evaluations", RUN.evaluations.length.toLocaleString("en-US")]);
  for (const [name, label] of [["hardware", "Hardware"], ["strategy", "Strategy"], ["seed", "Seed"]]) {
    const value = settings.get(name) ?? settings.get(name + ".name");
    if (value !== undefined) facts.push([label, value]);
  }
  const places = document.getElementById("facts");
  const all = RUN.settings.map(([name, value]) => `${name} = ${value}`).join("\n");
  places.replaceChildren(...facts.map(([name, value, tag]) =>
    el("div", { title: all }, el("dt", {}, name), el("dd", {}, value, " ", tag))));
}

function drawLegend() {
  const counts = new Map();
  for (const node of NODES) counts.set(node.status, (counts.get(node.status) || 0) + 1);
  const chips = RUN.statuses.filter((status) => counts.has(status)).map((status) => el("button", {
    type: "button", class: `chip ${status === "ok" ? "ok fast4" : "failed " + status}`, title: "Show or hide",
    "aria-pressed": String(!hiddenStatuses.has(status)),
    onclick: () => {
      if (!hiddenStatuses.delete(status)) hiddenStatuses.add(status);
      drawLegend();
      fit();
    },
  }, words(status), el("small", {}, counts.get(status))));
  const shades = ["slow6", "slow4", "slow2", "even", "fast2", "fast4", "fast6"].map((shade) => el("i", { class: "ok " + shade }));
  document.getElementById("legend").replaceChildren(...chips, el("span", { class: "space" }),
    el("span", { class: "scale", title: "colour of a right version, by its speedup over the root" }, "\u00bc\u00d7", ...shades, "4\u00d7"),
    el("span", { class: "pathkey" }, el("i"), "best path"));
}

// ---- search ----

// Words that all must occur; ">1.5" and "<1" for speedups; "code:word" looks into the sources.
function find(query) {
  const tests = query.toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
    const bound = word.match(/^([<>])(\d+(?:\.\d+)?)x?$/);
    if (bound) return (node) => node.speedup !== undefined && (bound[1] === ">" ? node.speedup > bound[2] : node.speedup < bound[2]);
    if (word.startsWith("code:") && word.length > 5) {
      const lines = new Set();
      RUN.lines.forEach((line, index) => { if (line.toLowerCase().includes(word.slice(5))) lines.add(index); });
      return (node) => node.source.some((index) => lines.has(index));
    }
    if (/^#\d+$/.test(word)) return (node) => node.id === Number(word.slice(1));
    return (node) => textOf(node).includes(word);
  });
  return tests.length ? new Set(NODES.filter((node) => tests.every((test) => test(node))).map((node) => node.id)) : null;
}

function textOf(node) {
  if (node.text === undefined) {
    const found = node.diagnosis ? [node.diagnosis.stage, node.diagnosis.kind, node.diagnosis.message] : [];
    const action = actionOf(node);
    const own = [kindOf(node), action && action.region, sentenceOf(node), words(node.status), node.status, node.hash];
    node.text = [...own, ...found].join(" ").toLowerCase();
  }
  return node.text;
}

function runSearch() {
  matches = find(search.value);
  found.textContent = matches === null ? "" : matches.size === 1 ? "1 hit" : `${matches.size} hits`;
  markMatches();
}

function nextMatch(back) {
  if (!matches || !matches.size) return;
  const ids = [...matches];
  const next = back ? ids.filter((id) => id < selected).pop() ?? ids[ids.length - 1] : ids.find((id) => id > selected) ?? ids[0];
  select(next, true);
}

// ---- keys ----

const HELP = [
  ["\u2190 \u2192", "parent, first child"], ["\u2191 \u2193", "version above, below"], ["Space", "expand or collapse"],
  ["b", "best version"], ["r", "root"], ["f", "fit the tree"], ["+ \u2212", "zoom"], ["e", "expand or collapse all"],
  ["1 2 3 4", "diff, source, metrics, actions"], ["s", "side by side"], ["/", "search"],
  ["Enter", "next hit, with Shift the one before"], ["Shift click", "compare the selected version with this one"], ["t", "light or dark"], ["Esc", "end the search"],
];
const SEARCHES = [
  ["fuse softmax", "all words occur in kind, region, sentence, status or diagnosis"],
  [">1.5", "faster than 1.5 times the root"], ["code:tl.dot", "occurs in the source"], ["#12", "version 12"],
];

function fillHelp() {
  const list = (rows) => el("dl", {}, rows.map(([key, text]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, text)]));
  keys.append(el("h2", {}, "Keys"), list(HELP), el("h2", {}, "Search"), list(SEARCHES),
    el("p", {}, "Runtimes are marked: measured means timed on a device, estimated means computed by a model of it."),
    el("button", { type: "button", onclick: () => keys.close() }, "Close"));
}

function neighbour(step) {
  const here = view.places.get(selected);
  const near = ([, place]) => Math.abs(place.x - here.x) < (view.packed ? CARD.width / 2 : 1);
  const column = [...view.places].filter(near).sort((a, b) => a[1].y - b[1].y || a[1].x - b[1].x);
  const next = column[column.findIndex(([id]) => id === selected) + step];
  if (next) select(next[0]);
}

function goRight() {
  const node = NODES[selected];
  if (!node.children.length) return;
  if (closed.has(selected)) toggle(selected);
  const open = node.children.filter((id) => view.places.has(id));
  if (open.length) select(open.find((id) => BEST_PATH.has(id)) ?? open[0]);
}

const KEYS = {
  ArrowLeft: () => { if (NODES[selected].parent !== undefined) select(NODES[selected].parent); },
  ArrowRight: goRight, ArrowUp: () => neighbour(-1), ArrowDown: () => neighbour(1),
  " ": () => toggle(selected), b: () => select(RUN.best, true), r: () => select(0, true), f: fit, e: toggleAll,
  "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8), s: switchSides, t: switchTheme,
  "/": () => search.focus(), "?": () => keys.showModal(), Enter: () => nextMatch(false), Escape: endSearch,
  1: () => openTab("diff"), 2: () => openTab("source"), 3: () => openTab("metrics"), 4: () => openTab("actions"),
};

function endSearch() {
  search.value = "";
  runSearch();
  canvas.focus({ preventScroll: true });
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || keys.open) return;
  if (event.target === search) {
    if (event.key === "Enter") nextMatch(event.shiftKey);
    if (event.key === "Escape") endSearch();
    return;
  }
  if (event.target.closest("button") && (event.key === " " || event.key === "Enter")) return;
  const action = KEYS[event.key];
  if (!action) return;
  event.preventDefault();
  if (event.key === "Enter") nextMatch(event.shiftKey); else action();
}

// ---- theme, sizes, start ----

function switchTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme || (dark ? "dark" : "light");
  document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
  try { localStorage.setItem("mtmc-theme", document.documentElement.dataset.theme); } catch { /* some browsers refuse it to files */ }
}

function restoreTheme() {
  try {
    const theme = localStorage.getItem("mtmc-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch { /* as above */ }
}

function listenToSplitter() {
  const main = document.getElementById("main");
  document.getElementById("splitter").addEventListener("pointerdown", (event) => {
    event.preventDefault();
    const move = (now) => {
      const width = Math.max(320, Math.min(main.clientWidth - 280, main.getBoundingClientRect().right - now.clientX));
      main.style.setProperty("--panel", width + "px");
    };
    const stop = () => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", stop);
      drawProgress();
      if (view.fitted) fit(); else moveMap();
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", stop);
  });
}

function start() {
  restoreTheme();
  document.getElementById("task").textContent = RUN.task;
  if (!NODES.length) { startLive(); return; } // the root is on its way
  if (RUN.notes) takeNotes(RUN.notes);
  foldForStart();
  selected = fromAddress() ?? RUN.best;
  live.followed = selected === RUN.best;
  drawHeader();
  drawLegend();
  reveal(selected);
  drawPanel();
  drawProgress();
  firstSight();
  fillHelp();
  listenToPointer();
  listenToMap();
  startLive();
  listenToSplitter();
  search.addEventListener("input", runSearch);
  document.getElementById("theme").addEventListener("click", switchTheme);
  document.getElementById("help").addEventListener("click", () => keys.showModal());
  const zooms = { in: () => zoom(1.25), out: () => zoom(0.8), fit, best: () => select(RUN.best, true), expand: toggleAll };
  document.getElementById("zoom").addEventListener("click", (event) => {
    const action = zooms[event.target.dataset.do];
    if (action) action();
  });
  addEventListener("keydown", onKey);
  addEventListener("resize", () => { drawProgress(); if (view.fitted) fit(); else moveMap(); });
  addEventListener("hashchange", () => { const id = fromAddress(); if (id !== null && id !== selected) select(id); });
}

start();

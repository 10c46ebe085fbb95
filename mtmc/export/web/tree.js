// The tree: which versions are drawn, and the canvas that pans and zooms.

const OPEN_LIMIT = 160; // a larger tree starts with only its most telling part open

const canvas = document.getElementById("canvas");
const world = document.getElementById("world");
const expandButton = document.querySelector("#zoom [data-do=expand]");

// fitted: whether all is to be in sight, also when the tree or the window changes.
const view = { x: 0, y: 0, scale: 1, places: new Map(), width: 0, height: 0, packed: false, fitted: false, cards: new Map() };
const closed = new Set(); // ids whose children are folded away
const hiddenStatuses = new Set();
let matches = null; // ids that the search found, or null where there is no search
let selected = RUN.best;

function foldForStart() {
  if (NODES.length <= OPEN_LIMIT) return;
  for (const node of NODES) if (node.children.length) closed.add(node.id);
  let drawn = 1;
  const open = (id) => { if (closed.delete(id)) drawn += NODES[id].children.length; };
  RUN.path.forEach((id) => { if (drawn + NODES[id].children.length <= OPEN_LIMIT) open(id); });
  const queue = [0];
  while (queue.length) {
    const id = queue.shift();
    if (closed.has(id) && drawn + NODES[id].children.length > OPEN_LIMIT) continue;
    open(id);
    queue.push(...NODES[id].children);
  }
  RUN.path.slice(0, -1).forEach(open); // the way to the best version is always in sight
}

// Ids of the versions that the filter leaves: those of a shown status, and the ancestors of such.
function shown() {
  const keep = NODES.map((node) => !hiddenStatuses.has(node.status));
  for (let id = NODES.length - 1; id > 0; id--) if (keep[id]) keep[NODES[id].parent] = true;
  keep[0] = true;
  return keep;
}

const childrenShown = (node, keep) => (closed.has(node.id) ? [] : node.children.filter((id) => keep[id]));

function layOut() {
  const keep = shown();
  const open = new Map([[0, childrenShown(ROOT, keep)]]); // a version's children come after it: one pass
  for (let id = 1; id < NODES.length; id++) {
    if (open.get(NODES[id].parent)?.includes(id)) open.set(id, childrenShown(NODES[id], keep));
  }
  const found = arrange([...open.keys()], (id) => open.get(id), roomOf(canvas));
  Object.assign(view, { packed: false }, found);
}

const MARGIN = { side: 28, foot: 44 };
const roomOf = (area) => ({
  width: Math.max(100, area.clientWidth - 2 * MARGIN.side), height: Math.max(100, area.clientHeight - 2 * MARGIN.side - MARGIN.foot),
});

function drawTree() {
  layOut();
  const lines = svg("svg", { class: "edges", width: view.width, height: view.height, "aria-hidden": "true" });
  const best = [];
  for (const [id, place] of view.places) {
    if (id === 0) continue;
    const path = edge(place, id);
    if (BEST_PATH.has(id)) best.push(path); else lines.append(path);
  }
  lines.append(...best); // over the others
  view.cards.clear();
  world.replaceChildren(lines, ...Array.from(view.places.keys(), card));
  expandButton.textContent = closed.size ? "Expand" : "Collapse";
  markSelected();
  markMatches();
  if (RUN.live) markBusy();
  drawMap();
}

function edge(place, id) {
  const visits = Math.max(0, NODES[id].notes.visits || 0);
  return svg("path", {
    d: place.path,
    class: BEST_PATH.has(id) ? "edge best" : "edge",
    style: { "--wide": (BEST_PATH.has(id) ? 3.5 : 1 + Math.min(2, Math.log2(1 + visits) / 3)).toFixed(2) },
  });
}

function card(id) {
  const node = NODES[id];
  const place = view.places.get(id);
  const action = actionOf(node);
  const name = action ? action.region : RUN.task;
  const marks = `${BEST_PATH.has(id) ? " onpath" : ""}${id === RUN.best ? " best" : ""}`;
  const element = el("div", {
    class: `card ${toneOf(node)}${marks}`, id: "n" + id, role: "treeitem", title: `#${id} ${sentenceOf(node)}`,
    "aria-label": `version ${id}, ${kindOf(node)}, ${resultOf(node)} ${node.speedup_kind || ""}`,
    "aria-expanded": node.children.length ? String(!closed.has(id)) : null, "aria-level": node.depth + 1,
    style: { left: place.x + "px", top: place.y + "px", width: CARD.width + "px", height: CARD.height + "px" },
    onclick: (event) => { if (!view.dragged) { if (event.shiftKey) compareWith(id); else select(id); } },
    ondblclick: () => toggle(id),
  },
  el("div", { class: "line" }, el("b", {}, kindOf(node)), el("span", { class: "region" }, name)),
  el("div", { class: "line" }, el("span", { class: "result" }, resultOf(node)),
    node.speedup_kind && el("span", { class: "est", title: KIND_NOTE[node.speedup_kind] }, SHORT_KIND[node.speedup_kind]),
    el("span", { class: "no" }, "#" + id)));
  if (id === RUN.best) element.append(el("span", { class: "star", title: "the best version" }, "\u2605"));
  if (node.children.length) {
    element.append(el("button", {
      class: "fold", type: "button", tabindex: "-1", "aria-label": closed.has(id) ? "expand" : "collapse",
      onclick: (event) => { event.stopPropagation(); toggle(id); },
    }, closed.has(id) ? "+" + node.inside : "\u2212"));
  }
  view.cards.set(id, element);
  return element;
}

function toggle(id) {
  if (!NODES[id].children.length) return;
  const before = view.places.get(id);
  if (!closed.delete(id)) closed.add(id);
  drawTree();
  stay(id, before);
}

// Keep a version where it is on the screen. before: its place before the tree was drawn again.
function stay(id, before) {
  const after = view.places.get(id);
  view.x += (before.x - after.x) * view.scale;
  view.y += (before.y - after.y) * view.scale;
  moveWorld();
}

function toggleAll() {
  if (closed.size) closed.clear();
  else for (const node of NODES) if (node.id !== 0 && node.children.length) closed.add(node.id);
  fit();
}

// Make a version visible: open all above it, and let the filter show its status.
function reveal(id) {
  let changed = hiddenStatuses.delete(NODES[id].status);
  if (changed) drawLegend();
  for (let at = NODES[id].parent; at !== undefined; at = NODES[at].parent) changed = closed.delete(at) || changed;
  if (changed || !view.places.has(id)) drawTree();
}

function markSelected() {
  for (const element of world.querySelectorAll(".card.selected")) element.classList.remove("selected");
  const element = view.cards.get(selected);
  if (element) element.classList.add("selected");
  markCompared();
  canvas.setAttribute("aria-activedescendant", "n" + selected);
}

function markMatches() {
  world.classList.toggle("searching", matches !== null);
  for (const [id, element] of view.cards) element.classList.toggle("match", matches !== null && matches.has(id));
}

// ---- pan and zoom ----

function moveWorld() {
  world.style.transform = `translate(${view.x}px,${view.y}px) scale(${view.scale})`;
  world.style.setProperty("--pixel", (1 / view.scale).toFixed(3));
  canvas.classList.toggle("far", view.scale < 0.42);
  moveMap();
}

// All in sight. A tree that was laid out for another room is laid out again.
function fit() {
  drawTree();
  const { side, foot } = MARGIN;
  view.scale = Math.max(0.02, Math.min(1.15, scaleTo(view, roomOf(canvas))));
  view.x = Math.max(side, (canvas.clientWidth - view.width * view.scale) / 2);
  view.y = side + Math.max(0, (canvas.clientHeight - side - foot - view.height * view.scale) / 2 - side / 2);
  view.fitted = true;
  moveWorld();
}

// The first sight: all of it where that can be read, else a readable size with the root in view, at the left, and as much
// of the way to the best version as there is room for.
function firstSight() {
  fit();
  if (view.scale >= READABLE) return;
  view.scale = 0.72;
  view.fitted = false;
  const root = view.places.get(0);
  const high = CARD.height * view.scale;
  view.x = MARGIN.side - root.x * view.scale;
  view.y = Math.min(MARGIN.side, canvas.clientHeight / 2 - (root.y + CARD.height / 2) * view.scale);
  const best = RUN.path.map((id) => view.places.get(id)).filter((place) => place && view.x + place.x * view.scale < canvas.clientWidth);
  const lowest = Math.max(...best.map((place) => place.y)) * view.scale + view.y + high;
  const spare = root.y * view.scale + view.y - MARGIN.side; // how far the root may go up
  view.y -= Math.max(0, Math.min(spare, lowest + MARGIN.foot - canvas.clientHeight));
  moveWorld();
}

function centre(id) {
  const place = view.places.get(id);
  view.x = canvas.clientWidth / 2 - (place.x + CARD.width / 2) * view.scale;
  view.y = canvas.clientHeight / 2 - (place.y + CARD.height / 2) * view.scale;
  view.fitted = false;
  moveWorld();
}

function bringIntoSight(id) {
  const place = view.places.get(id);
  const left = view.x + place.x * view.scale, top = view.y + place.y * view.scale;
  const right = left + CARD.width * view.scale, bottom = top + CARD.height * view.scale;
  if (left < 0 || top < 0 || right > canvas.clientWidth || bottom > canvas.clientHeight) centre(id);
}

function zoom(by, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  const scale = Math.max(0.02, Math.min(2.5, view.scale * by));
  view.fitted = false;
  view.x = x - (x - view.x) * scale / view.scale;
  view.y = y - (y - view.y) * scale / view.scale;
  view.scale = scale;
  moveWorld();
}

function listenToPointer() {
  const fingers = new Map();
  const spread = () => {
    const [a, b] = [...fingers.values()];
    return { size: Math.hypot(a.x - b.x, a.y - b.y) || 1, x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
  };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = canvas.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    if (event.target.closest("#zoom, #map, .fold")) return;
    fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    view.dragged = false;
  });
  window.addEventListener("pointermove", (event) => {
    const last = fingers.get(event.pointerId);
    if (!last) return;
    const before = fingers.size === 2 ? spread() : null;
    const dx = event.clientX - last.x, dy = event.clientY - last.y;
    if (!view.dragged && !before && Math.hypot(dx, dy) < 4) return; // a click with an unsteady hand
    view.dragged = true;
    view.fitted = false;
    fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    if (!before) { view.x += dx; view.y += dy; moveWorld(); return; }
    const now = spread(), box = canvas.getBoundingClientRect();
    zoom(now.size / before.size, now.x - box.left, now.y - box.top);
  });
  for (const name of ["pointerup", "pointercancel"]) window.addEventListener(name, (event) => fingers.delete(event.pointerId));
}

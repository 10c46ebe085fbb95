// The tree: which versions are drawn, where they stand, and the canvas that pans and zooms.

const CARD = { width: 158, height: 42, columnGap: 46, rowGap: 12 };
const OPEN_LIMIT = 160; // a larger tree starts with only its most telling part open

const canvas = document.getElementById("canvas");
const world = document.getElementById("world");
const expandButton = document.querySelector("#zoom [data-do=expand]");

const view = { x: 0, y: 0, scale: 1, places: new Map(), width: 0, height: 0, cards: new Map() };
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

// Leaves take a row each, in the order of their creation; a parent stands in the middle of its children.
function layOut() {
  const keep = shown();
  const places = new Map();
  let row = 0;
  const stack = [[0, false]];
  while (stack.length) {
    const [id, done] = stack.pop();
    const children = childrenShown(NODES[id], keep);
    if (children.length && !done) {
      stack.push([id, true]);
      for (let i = children.length - 1; i >= 0; i--) stack.push([children[i], false]);
      continue;
    }
    const y = children.length ? (places.get(children[0]).y + places.get(children[children.length - 1]).y) / 2
      : row++ * (CARD.height + CARD.rowGap);
    places.set(id, { x: NODES[id].depth * (CARD.width + CARD.columnGap), y });
  }
  view.places = places;
  view.width = Math.max(...Array.from(places.values(), (place) => place.x)) + CARD.width;
  view.height = Math.max(1, row) * (CARD.height + CARD.rowGap) - CARD.rowGap;
}

function drawTree() {
  layOut();
  const lines = svg("svg", { class: "edges", width: view.width, height: view.height, "aria-hidden": "true" });
  const best = [];
  for (const [id, place] of view.places) {
    if (id === 0) continue;
    const path = edge(view.places.get(NODES[id].parent), place, id);
    if (BEST_PATH.has(id)) best.push(path); else lines.append(path);
  }
  lines.append(...best); // over the others
  view.cards.clear();
  world.replaceChildren(lines, ...Array.from(view.places.keys(), card));
  expandButton.textContent = closed.size ? "Expand" : "Collapse";
  markSelected();
  markMatches();
}

function edge(from, to, id) {
  const x0 = from.x + CARD.width, y0 = from.y + CARD.height / 2, x1 = to.x, y1 = to.y + CARD.height / 2;
  const bend = (x0 + x1) / 2;
  const visits = Math.max(0, NODES[id].notes.visits || 0);
  return svg("path", {
    d: `M${x0} ${y0}C${bend} ${y0} ${bend} ${y1} ${x1} ${y1}`,
    class: BEST_PATH.has(id) ? "edge best" : "edge",
    style: { "stroke-width": BEST_PATH.has(id) ? "3.5px" : (1 + Math.min(2, Math.log2(1 + visits) / 3)).toFixed(2) + "px" },
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
    onclick: () => { if (!view.dragged) select(id); },
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
  const after = view.places.get(id); // keep the version that was clicked where it is on the screen
  view.x += (before.x - after.x) * view.scale;
  view.y += (before.y - after.y) * view.scale;
  moveWorld();
}

function toggleAll() {
  if (closed.size) closed.clear();
  else for (const node of NODES) if (node.id !== 0 && node.children.length) closed.add(node.id);
  drawTree();
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
  canvas.setAttribute("aria-activedescendant", "n" + selected);
}

function markMatches() {
  world.classList.toggle("searching", matches !== null);
  for (const [id, element] of view.cards) element.classList.toggle("match", matches !== null && matches.has(id));
}

// ---- pan and zoom ----

function moveWorld() {
  world.style.transform = `translate(${view.x}px,${view.y}px) scale(${view.scale})`;
  canvas.classList.toggle("far", view.scale < 0.42);
}

function fit() {
  const pad = 28, foot = 44;
  const wide = (canvas.clientWidth - 2 * pad) / view.width;
  const high = (canvas.clientHeight - pad - foot - pad) / view.height;
  view.scale = Math.max(0.06, Math.min(1.15, wide, high));
  view.x = Math.max(pad, (canvas.clientWidth - view.width * view.scale) / 2);
  view.y = pad + Math.max(0, (canvas.clientHeight - pad - foot - view.height * view.scale) / 2 - pad / 2);
  moveWorld();
}

// The first sight: all of it where that can be read, else the way to the best version at a readable size.
function firstSight() {
  fit();
  if (view.scale >= 0.5) return;
  view.scale = 0.72;
  centre(selected);
  // The way to a version lies to its left: give it the space, and leave none before the root.
  view.x = Math.min(24, view.x + canvas.clientWidth * 0.24);
  moveWorld();
}

function centre(id) {
  const place = view.places.get(id);
  view.x = canvas.clientWidth / 2 - (place.x + CARD.width / 2) * view.scale;
  view.y = canvas.clientHeight / 2 - (place.y + CARD.height / 2) * view.scale;
  moveWorld();
}

function bringIntoSight(id) {
  const place = view.places.get(id);
  const left = view.x + place.x * view.scale, top = view.y + place.y * view.scale;
  const right = left + CARD.width * view.scale, bottom = top + CARD.height * view.scale;
  if (left < 0 || top < 0 || right > canvas.clientWidth || bottom > canvas.clientHeight) centre(id);
}

function zoom(by, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  const scale = Math.max(0.05, Math.min(2.5, view.scale * by));
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
    if (event.target.closest("#zoom, .fold")) return;
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
    fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    if (!before) { view.x += dx; view.y += dy; moveWorld(); return; }
    const now = spread(), box = canvas.getBoundingClientRect();
    zoom(now.size / before.size, now.x - box.left, now.y - box.top);
  });
  for (const name of ["pointerup", "pointercancel"]) window.addEventListener(name, (event) => fingers.delete(event.pointerId));
}

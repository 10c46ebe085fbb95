// The map in the corner of the canvas: the whole tree in small, and what of it is in sight. There while not all is.

const map = document.getElementById("map");
const MAP = { width: 190, height: 120 };
let seen = null; // the rectangle on the map

function drawMap() {
  const scale = scaleTo(view, MAP);
  const size = { width: Math.max(1, CARD.width * scale), height: Math.max(1, CARD.height * scale) };
  const shapes = new Map(); // one path for each colour: thousands of versions stay a few elements
  for (const [id, place] of view.places) {
    const tone = id === RUN.best ? "winner" : toneOf(NODES[id]);
    const shape = `M${(place.x * scale).toFixed(1)} ${(place.y * scale).toFixed(1)}h${size.width.toFixed(1)}v${size.height.toFixed(1)}h${-size.width.toFixed(1)}z`;
    shapes.set(tone, (shapes.get(tone) || "") + shape);
  }
  const winner = view.places.get(RUN.best);
  const width = view.width * scale, height = view.height * scale;
  seen = svg("rect", { class: "seen" });
  map.replaceChildren(svg("svg", { width, height, role: "img", "aria-label": "the whole tree" },
    [...shapes].map(([tone, shape]) => svg("path", { class: tone, d: shape })),
    winner && svg("circle", { class: "winner", r: 3.5, cx: winner.x * scale + size.width / 2, cy: winner.y * scale + size.height / 2 }), seen));
  map.dataset.scale = scale;
  moveMap();
}

function moveMap() {
  if (!seen) return;
  const scale = Number(map.dataset.scale);
  const left = -view.x / view.scale, top = -view.y / view.scale;
  const right = left + canvas.clientWidth / view.scale, bottom = top + canvas.clientHeight / view.scale;
  map.hidden = left <= 0 && top <= 0 && right >= view.width && bottom >= view.height;
  const within = (value, most) => Math.max(0, Math.min(most, value)) * scale;
  const x = within(left, view.width), y = within(top, view.height);
  dress(seen, { x, y, width: within(right, view.width) - x, height: within(bottom, view.height) - y }, []);
}

function listenToMap() {
  const go = (event) => {
    const box = map.firstChild.getBoundingClientRect(), scale = Number(map.dataset.scale);
    view.x = canvas.clientWidth / 2 - (event.clientX - box.left) / scale * view.scale;
    view.y = canvas.clientHeight / 2 - (event.clientY - box.top) / scale * view.scale;
    view.fitted = false;
    moveWorld();
  };
  map.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    map.setPointerCapture(event.pointerId);
    go(event);
  });
  map.addEventListener("pointermove", (event) => { if (map.hasPointerCapture(event.pointerId)) go(event); });
}

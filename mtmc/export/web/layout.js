// Where the versions that are drawn stand: side by side in generations while that can be read, else packed into the canvas.

const CARD = { width: 158, height: 42, columnGap: 46, rowGap: 12 };
const READABLE = 0.5; // a scale below which text on cards is too small
const PACKED = { indent: 22, gap: 30, corridor: 12, limits: 24, worth: 1.2 };
const STEP = CARD.width + CARD.columnGap;
const ROW = CARD.height + CARD.rowGap;

// Places by id: {x, y, path}, path: of the edge from the parent. order: drawn versions, parents first. childrenOf: those drawn.
function arrange(order, childrenOf, room) {
  const generations = inGenerations(order, childrenOf);
  if (scaleTo(generations, room) >= READABLE) return generations;
  return packedBest(order, childrenOf, room) ?? generations;
}

const scaleTo = (size, room) => Math.min(room.width / size.width, room.height / size.height);

// Leaves take a row each, in the order of their creation; a parent stands in the middle of its children.
function inGenerations(order, childrenOf) {
  const places = new Map();
  let row = 0, deepest = 0;
  for (const id of leavesFirst(order, childrenOf)) {
    const children = childrenOf(id);
    const y = children.length ? (places.get(children[0]).y + places.get(children[children.length - 1]).y) / 2 : row++ * ROW;
    places.set(id, { x: NODES[id].depth * STEP, y });
    deepest = Math.max(deepest, NODES[id].depth);
  }
  for (const [id, place] of places) {
    if (id === 0) continue;
    const from = places.get(NODES[id].parent);
    const x0 = from.x + CARD.width, y0 = from.y + CARD.height / 2, y1 = place.y + CARD.height / 2;
    const bend = (x0 + place.x) / 2;
    place.path = `M${x0} ${y0}C${bend} ${y0} ${bend} ${y1} ${place.x} ${y1}`;
  }
  return { places, width: deepest * STEP + CARD.width, height: Math.max(1, row) * ROW - CARD.rowGap };
}

// Every child before its parent, siblings in the order of their creation.
function leavesFirst(order, childrenOf) {
  const result = [], stack = [[0, false]];
  while (stack.length) {
    const [id, done] = stack.pop();
    const children = childrenOf(id);
    if (done || !children.length) { result.push(id); continue; }
    stack.push([id, true]);
    for (let i = children.length - 1; i >= 0; i--) stack.push([children[i], false]);
  }
  return result;
}

// The packing that is drawn largest, over several limits of a box; null where nothing is drawn.
function packedBest(order, childrenOf, room) {
  let best = null;
  const side = Math.sqrt(order.length * STEP * ROW * room.height / room.width);
  for (const dense of [false, true]) {
    for (let step = 0; step < PACKED.limits; step++) {
      const high = Math.max(CARD.height, side * 1.12 ** (step - 6));
      const found = packed(order, childrenOf, high, high * room.width / room.height, dense);
      if (!best || scaleTo(found, room) > scaleTo(best, room) * (dense && !best.dense ? PACKED.worth : 1)) best = { ...found, dense };
    }
  }
  return best && placed(best);
}

// Each version with all below it is a box. Its children's boxes fill columns of at most `high`, the narrow ones first,
// to the right of it, or below it where they would become wider than `wide`, or (dense) where that takes less room.
function packed(order, childrenOf, high, wide, dense) {
  const boxes = new Map();
  for (let index = order.length - 1; index >= 0; index--) {
    const id = order[index];
    const children = childrenOf(id);
    if (!children.length) { boxes.set(id, { width: CARD.width, height: CARD.height, columns: [] }); continue; }
    const inside = columnsOf(children, boxes, high);
    const top = inside.columns.length > 1 ? PACKED.corridor : 0;
    const beside = { right: true, width: STEP + inside.width, height: Math.max(CARD.height, top + inside.height) };
    const below = { right: false, width: Math.max(CARD.width, PACKED.indent + inside.width), height: ROW + inside.height };
    const right = beside.width <= wide && (!dense || area(beside) <= area(below));
    boxes.set(id, { columns: inside.columns, ...(right ? beside : below) });
  }
  const root = boxes.get(0);
  return { boxes, width: root.width, height: root.height };
}

const area = (box) => (box.width + PACKED.gap) * (box.height + CARD.rowGap);

function columnsOf(children, boxes, high) {
  const ordered = [...children].sort((a, b) => boxes.get(a).width - boxes.get(b).width || a - b);
  const columns = [];
  for (const id of ordered) {
    const box = boxes.get(id);
    let column = columns[columns.length - 1];
    if (!column || column.height + CARD.rowGap + box.height > high) {
      column = { ids: [], width: 0, height: -CARD.rowGap };
      columns.push(column);
    }
    column.ids.push(id);
    column.width = Math.max(column.width, box.width);
    column.height += CARD.rowGap + box.height;
  }
  const width = columns.reduce((sum, column) => sum + column.width, (columns.length - 1) * PACKED.gap);
  return { columns, width, height: Math.max(...columns.map((column) => column.height)) };
}

function placed({ boxes, width, height }) {
  const places = new Map([[0, { x: 0, y: 0 }]]);
  const waiting = [0];
  while (waiting.length) {
    const id = waiting.pop();
    const { x, y } = places.get(id), box = boxes.get(id);
    const several = box.columns.length > 1;
    let left = x + (box.right ? STEP : PACKED.indent);
    const top = y + (box.right ? (several ? PACKED.corridor : 0) : ROW);
    // An edge leaves its parent along a corridor above all columns, and goes down beside its own.
    const along = box.right ? y + (several ? PACKED.corridor / 2 : CARD.height / 2) : y + CARD.height + CARD.rowGap / 2;
    const start = box.right ? `M${x + CARD.width} ${along}` : `M${x + PACKED.indent / 2} ${y + CARD.height}V${along}`;
    box.columns.forEach((column, index) => {
      const beside = index ? left - PACKED.gap / 2 : box.right ? left - CARD.columnGap / 2 : x + PACKED.indent / 2;
      let at = top;
      for (const child of column.ids) {
        places.set(child, { x: left, y: at, path: `${start}H${beside}V${at + CARD.height / 2}H${left}` });
        waiting.push(child);
        at += boxes.get(child).height + CARD.rowGap;
      }
      left += column.width + PACKED.gap;
    });
  }
  return { places, width, height, packed: true };
}

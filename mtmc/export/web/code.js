// Source text: tokens of Python, the difference of two versions, and both as elements.

const KEYWORDS = new Set(("and as assert async await break class continue def del elif else except finally for from global " +
  "if import in is lambda nonlocal not or pass raise return try while with yield match case").split(" "));
const CONSTANTS = new Set(["True", "False", "None", "self"]);
const MODULES = new Set(["tl", "triton", "torch", "nn", "F"]);
const TOKEN = new RegExp([
  /(?<comment>#[^\n]*)/,
  /(?<string>[rRbBfFuU]{0,2}(?:"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))/,
  /(?<decorator>@[\w.]+)/,
  /(?<number>\b(?:0[xX][\da-fA-F_]+|\d[\d_]*\.?[\d_]*(?:[eE][+-]?\d+)?)\b)/,
  /(?<name>[A-Za-z_]\w*)/,
].map((part) => part.source).join("|"), "g");

// Per line a list of [class, text]; class "" is plain.
function tokenise(text) {
  const lines = [[]];
  const push = (kind, piece) => piece.split("\n").forEach((part, index) => {
    if (index > 0) lines.push([]);
    if (part) lines[lines.length - 1].push([kind, part]);
  });
  let end = 0;
  let before = "";
  for (const match of text.matchAll(TOKEN)) {
    if (match.index > end) push("", text.slice(end, match.index));
    end = match.index + match[0].length;
    push(classOf(match, before, text[match.index - 1], text[end]), match[0]);
    if (match.groups.name) before = match[0];
  }
  if (end < text.length) push("", text.slice(end));
  return lines;
}

function classOf(match, before, left, right) {
  const { comment, string, decorator, number: digits, name } = match.groups;
  if (comment) return "com";
  if (string) return "str";
  if (decorator) return "dec";
  if (digits) return "num";
  if (KEYWORDS.has(name)) return "key";
  if (CONSTANTS.has(name)) return "con";
  if (before === "def" || before === "class") return "def";
  if (MODULES.has(name) && left !== ".") return "mod";
  return right === "(" ? "fun" : "";
}

const tokenCache = new Map();

function tokensOf(node) {
  if (!tokenCache.has(node.id)) {
    if (tokenCache.size > 60) tokenCache.delete(tokenCache.keys().next().value);
    tokenCache.set(node.id, tokenise(linesOf(node).join("\n")));
  }
  return tokenCache.get(node.id);
}

// The spans of one line; characters from hot[0] to hot[1] are marked as what changed.
function spans(tokens, hot) {
  const result = [];
  let at = 0;
  for (const [kind, text] of tokens) {
    const cuts = [0, text.length];
    if (hot) for (const edge of hot) if (edge > at && edge < at + text.length) cuts.push(edge - at);
    cuts.sort((a, b) => a - b);
    for (let i = 0; i + 1 < cuts.length; i++) {
      const inside = hot && at + cuts[i] >= hot[0] && at + cuts[i + 1] <= hot[1] && hot[1] > hot[0];
      const name = kind + (inside ? " hot" : "");
      const piece = text.slice(cuts[i], cuts[i + 1]);
      if (piece) result.push(name.trim() ? el("span", { class: name.trim() }, piece) : piece);
    }
    at += text.length;
  }
  return result.length ? result : ["\u200b"];
}

// ---- difference ----

const DIFF_CELLS = 4e6; // a larger middle is shown as one replaced block: right, if not the shortest

// Rows {op: " " | "-" | "+", a, b}: positions in the old and in the new lines. Lines compare by number.
function difference(a, b) {
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const rows = [];
  for (let i = 0; i < head; i++) rows.push({ op: " ", a: i, b: i });
  middle(a, b, head, a.length - tail, b.length - tail, rows);
  for (let i = tail; i > 0; i--) rows.push({ op: " ", a: a.length - i, b: b.length - i });
  return rows;
}

// Longest common subsequence of a[from..aEnd) and b[from..bEnd).
function middle(a, b, from, aEnd, bEnd, rows) {
  const n = aEnd - from;
  const m = bEnd - from;
  const width = m + 1;
  const small = n * m <= DIFF_CELLS;
  const length = new Uint32Array(small ? (n + 1) * width : 0);
  if (small) {
    for (let i = n - 1; i >= 0; i--) {
      for (let j = m - 1; j >= 0; j--) {
        length[i * width + j] = a[from + i] === b[from + j]
          ? length[(i + 1) * width + j + 1] + 1
          : Math.max(length[(i + 1) * width + j], length[i * width + j + 1]);
      }
    }
  }
  let i = 0;
  let j = 0;
  while (i < n || j < m) {
    if (small && i < n && j < m && a[from + i] === b[from + j]) rows.push({ op: " ", a: from + i++, b: from + j++ });
    else if (i < n && (j === m || !small || length[(i + 1) * width + j] >= length[i * width + j + 1])) rows.push({ op: "-", a: from + i++ });
    else rows.push({ op: "+", b: from + j++ });
  }
}

// Rows in blocks: {same: rows} or {out: rows, in: rows}.
function blocks(rows) {
  const result = [];
  for (const row of rows) {
    const last = result[result.length - 1];
    if (row.op === " ") {
      if (last && last.same) last.same.push(row); else result.push({ same: [row] });
    } else {
      const block = last && last.out ? last : { out: [], in: [] };
      if (block !== last) result.push(block);
      (row.op === "-" ? block.out : block.in).push(row);
    }
  }
  return result;
}

// The part of each of two lines that the other does not share, or null where they have little in common.
function changedPart(old, now) {
  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) head++;
  let tail = 0;
  while (tail < old.length - head && tail < now.length - head && old[old.length - 1 - tail] === now[now.length - 1 - tail]) tail++;
  if (head + tail < Math.max(old.trim().length, now.trim().length) * 0.4) return null;
  return [[head, old.length - tail], [head, now.length - tail]];
}

// ---- views ----

// The code of one line; where it wraps, the rest hangs two characters below its own indent.
function codeOf(tokens, hot) {
  const first = tokens.length && tokens[0][0] === "" ? tokens[0][1] : "";
  return el("code", { style: { "--in": first.length - first.trimStart().length + "ch" } }, spans(tokens, hot));
}

const CONTEXT = 3;

function sourceView(node, marked) {
  const tokens = tokensOf(node);
  const bad = node.diagnosis ? node.diagnosis.line : undefined;
  return el("div", { class: "code source" }, linesOf(node).map((_, index) => {
    const line = index + 1;
    const inRegion = marked && line >= marked[0] && line <= marked[1];
    return el("div", { class: "row" + (line === bad ? " bad" : "") + (inRegion ? " region" : "") },
      el("span", { class: "no" }, line), codeOf(tokens[index] || []));
  }));
}

function diffView(before, node, side) {
  const sides = { old: linesOf(before), now: linesOf(node), oldTokens: tokensOf(before), nowTokens: tokensOf(node) };
  const parts = blocks(difference(before.source, node.source));
  const view = el("div", { class: "code diff" + (side ? " side" : "") });
  if (parts.every((part) => part.same)) view.append(el("p", { class: "empty" }, "The same text."));
  parts.forEach((part, index) => {
    if (part.same) view.append(...folded(part.same, index === 0, index === parts.length - 1, side, sides));
    else view.append(...(side ? sideRows(part, sides) : unifiedRows(part, sides)));
  });
  return view;
}

// Unchanged rows: a few around each change, the others behind a button.
function folded(rows, first, last, side, sides) {
  const lead = first ? 0 : CONTEXT;
  const trail = last ? 0 : CONTEXT;
  const draw = (some) => some.map((row) => (side ? sideRow(row, row, sides) : unifiedRow(row, sides)));
  if (rows.length <= lead + trail + 2) return draw(rows);
  const hidden = rows.slice(lead, rows.length - trail);
  const button = el("button", { class: "fold", type: "button", onclick: () => button.replaceWith(...draw(hidden)) },
    `${hidden.length} unchanged lines`);
  return [...draw(rows.slice(0, lead)), button, ...draw(rows.slice(rows.length - trail))];
}

function markPairs(part, sides) {
  for (let i = 0; i < Math.min(part.out.length, part.in.length); i++) {
    const marks = changedPart(sides.old[part.out[i].a], sides.now[part.in[i].b]);
    if (marks) [part.out[i].hot, part.in[i].hot] = marks;
  }
}

function unifiedRows(part, sides) {
  markPairs(part, sides);
  return [...part.out, ...part.in].map((row) => unifiedRow(row, sides));
}

const ROW_CLASS = { " ": "", "-": " out", "+": " in" };
const SIGN = { " ": " ", "-": "\u2212", "+": "+" };

function unifiedRow(row, sides) {
  const tokens = row.op === "-" ? sides.oldTokens[row.a] : sides.nowTokens[row.b];
  return el("div", { class: "row" + ROW_CLASS[row.op] },
    el("span", { class: "no" }, row.a === undefined ? "" : row.a + 1),
    el("span", { class: "no" }, row.b === undefined ? "" : row.b + 1),
    el("span", { class: "sign" }, SIGN[row.op]), codeOf(tokens || [], row.hot));
}

function sideRows(part, sides) {
  markPairs(part, sides);
  const count = Math.max(part.out.length, part.in.length);
  return Array.from({ length: count }, (_, i) => sideRow(part.out[i], part.in[i], sides));
}

function sideRow(left, right, sides) {
  return el("div", { class: "row" }, half(left, "a", sides.oldTokens, " out"), half(right, "b", sides.nowTokens, " in"));
}

function half(row, at, tokens, changed) {
  if (!row) return el("div", { class: "half none" });
  return el("div", { class: "half" + (row.op === " " ? "" : changed) },
    el("span", { class: "no" }, row[at] + 1), codeOf(tokens[row[at]] || [], row.hot));
}

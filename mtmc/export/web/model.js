// The run as the page knows it: nodes with children and depth, and their colours. A run that goes on grows.

let RUN, NODES, ROOT, BEST_PATH;

function take(run) {
  RUN = run;
  NODES = run.nodes;
  ROOT = NODES[0];
  link(0);
}

// Children, depths and numbers of descendants, of versions from `first` on.
function link(first) {
  BEST_PATH = new Set(RUN.path);
  for (let id = first; id < NODES.length; id++) {
    const node = NODES[id];
    node.children = [];
    node.depth = node.parent === undefined ? 0 : NODES[node.parent].depth + 1;
    if (node.parent !== undefined) NODES[node.parent].children.push(id);
  }
  for (const node of NODES) node.inside = 0; // how many versions descend from it
  for (let id = NODES.length - 1; id > 0; id--) NODES[NODES[id].parent].inside += 1 + NODES[id].inside;
}

const actionOf = (node) => (node.action === undefined ? null : RUN.actions[node.action]);
const kindOf = (node) => (node.action === undefined ? "root" : actionOf(node).kind);
const sentenceOf = (node) => (node.action === undefined ? "The reference, as it was given." : actionOf(node).sentence);
const linesOf = (node) => node.source.map((index) => RUN.lines[index]);
const words = (name) => name.replaceAll("_", " ");

// ---- colours: the page's style holds them, so that light and dark each have their own ----

const SHADES = 6;

// The class of a node's colour: its status where it failed, else a shade by speedup, 0.25x .. 1x .. 4x.
function toneOf(node) {
  if (node.status !== "ok") return "failed " + node.status;
  if (node.speedup === undefined) return "ok even";
  const share = Math.sqrt(Math.min(1, Math.abs(Math.log2(node.speedup)) / 2));
  const shade = Math.round(share * SHADES);
  if (shade === 0) return "ok even";
  return `ok ${node.speedup > 1 ? "fast" : "slow"}${shade}`;
}

const resultOf = (node) => (node.speedup === undefined ? words(node.status) : factor(node.speedup));

// Best speedup so far after each evaluation; starts from the root, which can always be handed back.
function bestSoFar() {
  let best = ROOT.speedup === undefined ? null : 1;
  return RUN.evaluations.map((id) => {
    const node = NODES[id];
    if (best !== null && node.status === "ok" && node.speedup !== undefined) best = Math.max(best, node.speedup);
    return best;
  });
}

take(JSON.parse(document.getElementById("run-data").textContent));

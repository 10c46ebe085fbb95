// A page that is served asks for what is new of its run, and grows with it. One from a file has nobody to ask.

const live = { trouble: "", followed: true };
const WAIT = { running: 1000, still: 3000, failed: 4000 }; // milliseconds
const CHIPS = 6;

async function ask() {
  const known = { versions: NODES.length, lines: RUN.lines.length, actions: RUN.actions.length, evaluations: RUN.evaluations.length, statistics: RUN.statistics };
  let wait = WAIT.failed;
  try {
    const answer = await fetch(`${RUN.address}?${new URLSearchParams(known)}`, { cache: "no-store" });
    const news = await answer.json();
    if (!answer.ok) throw new Error(news.error);
    if (news.generation !== RUN.generation || (!NODES.length && news.nodes.length)) return location.reload();
    live.trouble = "";
    const began = performance.now();
    if (NODES.length) grow(news); else RUN.live = news.live;
    wait = RUN.live.state === "running" && !document.hidden ? WAIT.running : WAIT.still;
    wait = Math.max(wait, 5 * (performance.now() - began)); // thousands of cards take a while to draw
  } catch (error) {
    // Whoever ends mtmc watch need not be told what the browser calls it.
    live.trouble = error instanceof TypeError ? "mtmc watch has ended: this is how the run stood then" : error.message;
  }
  drawLive();
  setTimeout(ask, wait);
}

function grow(news) {
  const first = NODES.length, best = RUN.best;
  for (const name of ["nodes", "lines", "actions", "evaluations", "seconds", "usd"]) for (const each of news[name]) RUN[name].push(each);
  for (const name of ["best", "path", "settings", "live"]) RUN[name] = news[name];
  if (news.notes) { RUN.statistics = news.statistics; takeNotes(news.notes); }
  if (NODES.length === first && !news.notes) { markBusy(); return; }
  link(first);
  if (live.followed && RUN.best !== best && selected === best) selected = RUN.best;
  drawAgain(first < NODES.length, best !== RUN.best);
}

// Search statistics by version, in place of those that were there.
function takeNotes(notes) {
  for (const [id, each] of notes) if (NODES[id]) NODES[id].notes = each;
}

// more: whether there are more versions. better: whether another is the best.
function drawAgain(more, better) {
  drawHeader();
  drawLegend();
  const held = anchor(), before = view.places.get(held);
  if (view.fitted) fit();
  else { drawTree(); stay(view.places.has(held) ? held : 0, before); }
  if (more) drawProgress();
  if (better && selected === RUN.best) { drawPanel(); return; }
  const node = NODES[selected];
  panel.querySelector(".headline").replaceWith(headline(node));
  panel.querySelector(".tiles").replaceWith(tiles(node));
  if (more && tabOf(node) === "actions") drawPanel();
}

// The version that keeps its place on the screen: the selected one or the root where they are in sight, else the one that is
// nearest to the middle.
function anchor() {
  const across = canvas.clientWidth / view.scale, down = canvas.clientHeight / view.scale;
  const left = -view.x / view.scale, top = -view.y / view.scale;
  const inSight = (place) => place && place.x + CARD.width > left && place.x < left + across && place.y + CARD.height > top && place.y < top + down;
  const first = [selected, 0].find((id) => inSight(view.places.get(id)));
  if (first !== undefined) return first;
  const distance = ([, place]) => Math.hypot(place.x - left - across / 2, place.y - top - down / 2);
  return [...view.places].reduce((a, b) => (distance(b) < distance(a) ? b : a))[0];
}

// Versions from which a trial is under way.
function markBusy() {
  const busy = new Set((RUN.live ? RUN.live.trials : []).map((trial) => trial.node));
  for (const [id, element] of view.cards) element.classList.toggle("busy", RUN.live.state === "running" && busy.has(id));
}

function drawLive() {
  const strip = document.getElementById("live");
  const { state, finished, evaluations, budget, seconds, usd, tokens, trials } = RUN.live;
  const said = live.trouble || { running: NODES.length ? "running" : "the reference is being evaluated", ended: `ended: ${finished}`,
    stopped: "stopped: mtmc resume goes on" }[state];
  const chips = trials.slice(0, CHIPS).map((trial) => el("button", {
    type: "button", class: "trial", title: `trial ${trial.trial}, from #${trial.node}: ${trial.sentence}`, onclick: () => select(trial.node),
  }, el("b", {}, trial.kind), ` #${trial.node} `, el("small", {}, trial.attempts > 1 ? `${trial.stage}, edit ${trial.attempts}` : trial.stage)));
  const share = Math.min(100, 100 * evaluations / Math.max(1, budget));
  strip.hidden = false;
  strip.className = live.trouble ? "trouble" : state;
  strip.replaceChildren(
    ...(RUN.back ? [el("a", { class: "tool", href: RUN.back }, "All runs")] : []),
    el("span", { class: "state" }, said),
    el("span", { class: "bar", title: `${evaluations} of ${budget} evaluations` }, el("i", { style: { width: share.toFixed(1) + "%" } })),
    el("span", {}, `${evaluations.toLocaleString("en-US")} / ${budget.toLocaleString("en-US")} evaluations`),
    el("span", {}, duration(seconds)),
    ...(tokens ? [el("span", {}, `${AXES.usd.text(usd)}, ${tokens.toLocaleString("en-US")} tokens`)] : []),
    el("span", { class: "trials" }, chips, ...(trials.length > CHIPS ? [el("span", {}, `and ${trials.length - CHIPS} more`)] : [])));
}

function startLive() {
  if (!RUN.live) return;
  drawLive();
  setTimeout(ask, WAIT.running);
}

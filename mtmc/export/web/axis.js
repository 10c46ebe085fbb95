// What curves are drawn against (evaluations, seconds, US dollars), and the steps of both axes.

const AXES = {
  evaluations: { label: "Evaluations", text: (value) => value.toLocaleString("en-US") },
  seconds: { label: "Time", text: duration },
  usd: { label: "Cost", text: (value) => "$" + (value >= 0.1 || value === 0 ? value.toFixed(2) : value.toPrecision(2)) },
};

function duration(seconds) {
  if (seconds < 100) return `${number(seconds < 10 ? seconds : Math.round(seconds))} s`;
  if (seconds < 6000) return `${number(Math.round(seconds / 6) / 10)} min`;
  return `${number(Math.round(seconds / 360) / 10)} h`;
}

// Round values from 0 to `most`, about `count` of them.
function steps(name, most, count) {
  const least = most / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(least || 1));
  const sizes = name === "seconds" && least > 5 ? [10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 18000, 36000] : [1, 2, 5, 10].map((size) => size * power);
  let size = sizes.find((each) => each >= least) ?? least;
  if (name === "evaluations") size = Math.max(1, Math.round(size));
  const result = [];
  for (let step = 0; step * size <= most * 1.0001; step++) result.push(Number((step * size).toPrecision(12)));
  return result;
}

// Speedups: powers of two over a wide range, round steps over a narrow one.
function gainTicks(low, high) {
  const result = [];
  if (high / low >= 3.5) {
    const step = high / low > 40 ? 4 : 2;
    for (let gain = 2 ** -20; gain <= high; gain *= step) if (gain >= low) result.push(gain);
    return result;
  }
  const step = [0.05, 0.1, 0.2, 0.5].find((size) => (high - low) / size <= 5) || 1;
  for (let count = Math.ceil(low / step); count * step <= high; count++) result.push(Number((count * step).toFixed(2)));
  return result;
}

// Buttons that choose between axes; nothing where there is no choice.
function axisButtons(names, now, choose) {
  if (names.length < 2) return null;
  return el("div", { class: "axes", role: "group", "aria-label": "horizontal axis" }, names.map((name) => el("button", {
    type: "button", class: "tool", "aria-pressed": String(name === now), onclick: () => choose(name),
  }, AXES[name].label)));
}

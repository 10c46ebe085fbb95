"""How many evaluations a search needs with different priors, on recorded trees of tasks that no policy has learned from.

    PYTHONPATH=. python benchmarks/policy_priors.py trees/h100 --policy compact --out results/policy_priors
    PYTHONPATH=. python benchmarks/policy_priors.py trees/h100 --policy untrained=compact,weights=none/best/weights.npz \\
        --policy "lm, no RL=lm,adapter=none" --seeds 8
    PYTHONPATH=. python benchmarks/policy_priors.py trees/h100 --policy lm --keep priors --only-ask

For each tree of the test split and each seed an MCTS is replayed (`mtmc.rl.replays`) with the priors of `uniform`,
`heuristic` and every `--policy [LABEL=]NAME[,SETTING=VALUE ...]`, at the same budget. Told are the evaluations (the root's
included) until the best version has 95% of the best known speedup; where that is not reached, the budget counts. What
stands in brackets is a 95% interval: trees are drawn anew, with all their seeds. "fewer" is the ratio of the mean
evaluations, on the same trees. Greedy: the policy alone, without a search, the most probable action at each step.
`hindsight oracle` has the value of every recorded action as its prior: an upper bound, about what is left for any policy to
gain. The picture shows the shares of the best known speedup over the evaluations, where there are no more policies than
colours.

--keep FOLDER keeps the priors of each policy, one file a label, and takes those that are there already: a language model is
asked on a GPU (--only-ask), and searches are replayed anywhere.

--decoys adds, for each version, up to 32 actions of the tree's other versions, which fail: no action space.
Trees whose root is good enough itself are left out.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import Report
from benchmarks.figures import header, row
from mtmc.errors import ConfigError
from mtmc.rl.forest import forest_of
from mtmc.rl.replays import REACHED, Curve, Priors, priors_of, replay_search
from mtmc.rl.train.data import data_hash
from mtmc.rl.train.open_space import open_space
from mtmc.rl.train.pretraining import Pretraining, action_values
from mtmc.rl.train.ragged import log_softmax_np
from mtmc.rl.train.validate import LEAST_GAIN
from mtmc.rl.trees import RecordedTree, load_trees
from mtmc.search.components import make, registry
from mtmc.search.strategies import Greedy, Mcts

DRAWS = 2000
"""Of the bootstrap."""
ALWAYS = ("uniform", "heuristic")
HINDSIGHT = "hindsight oracle"
SHOWN = 32
"""Evaluations that the picture shows at most."""
BANDS = 6
"""Lines that are shown with their intervals at most."""


@dataclass
class Measured:
    """One policy. curves: [trees][seeds]. greedy: [trees], log2 speedup. prior_ms: milliseconds a version."""

    label: str
    curves: list[list[Curve]] = field(default_factory=list)
    greedy: list[Curve] = field(default_factory=list)
    prior_ms: list[float] = field(default_factory=list)

    def evaluations(self, budgets: Sequence[int]) -> NDArray[np.float64]:
        """[trees], mean over the seeds; the budget where the goal was not reached."""
        means = [
            np.mean([curve.evaluations_to() or budget for curve in curves])
            for curves, budget in zip(self.curves, budgets, strict=True)
        ]
        return np.asarray(means)

    def reached(self) -> float:
        """Share of the searches that reached the goal."""
        return float(np.mean([curve.evaluations_to() is not None for curves in self.curves for curve in curves]))

    def shares(self, count: int) -> NDArray[np.float64]:
        """[trees, count]: share of the best known log2 speedup after 1, 2, ... evaluations, mean over the seeds."""
        shares = [
            [[curve.at(at) / curve.best for at in range(1, count + 1)] for curve in curves] for curves in self.curves
        ]
        return np.asarray(shares).mean(axis=1)


def made(text: str) -> tuple[str, Any]:
    """Label and policy of "[LABEL=]NAME[,SETTING=VALUE ...]". Raises: ConfigError."""
    label, _, spec = text.partition("=")
    if label.split(",")[0] in registry("policy"):  # then that was no label
        label, spec = text, text
    name, *settings = spec.split(",")
    given: dict[str, Any] = {}
    for each in settings:
        key, equals, value = each.partition("=")
        if not equals:
            raise ConfigError(f"{each!r} is no setting: write NAME=VALUE")
        try:
            given[key] = float(value)
        except ValueError:
            given[key] = value
    return label, make("policy", name, given)


def hindsight(tree: RecordedTree) -> Priors:
    """Priors of the hindsight oracle, an upper bound: softmax of the values of the recorded actions."""
    settings, forest = Pretraining(), forest_of([tree])
    logits = settings.sharpness * action_values(forest, settings.gamma, settings.failure)
    batch = forest.batch(np.arange(len(forest.ok)))
    found = np.zeros(len(logits))
    found[batch.edges] = np.exp(log_softmax_np(logits[batch.edges], batch.counts[batch.counts > 0]))
    return [found[first:last].tolist() for first, last in pairwise(forest.start.tolist())]


@dataclass(frozen=True)
class Asked:
    """What a policy said of all trees, and the milliseconds that it took a version, a number for each tree."""

    priors: list[Priors]
    prior_ms: list[float]


def ask(priors_for: Callable[[RecordedTree], Priors], trees: Sequence[RecordedTree]) -> Asked:
    """The priors of one policy, timed."""
    from mtmc.rewrite.exported import export_graph

    found = Asked([], [])
    for tree in trees:
        if tree.graph is not None:
            export_graph(tree.task)  # as a search has done before it asks a policy
        started = time.perf_counter()
        priors = priors_for(tree)
        seconds = time.perf_counter() - started
        found.priors.append(priors)
        found.prior_ms.append(1e3 * seconds / max(1, sum(bool(each) for each in priors)))
    return found


def kept(
    label: str, priors_for: Callable[[RecordedTree], Priors], trees: Sequence[RecordedTree], path: Path, data: str
) -> Asked:
    """As `ask`, written to a file, or read where it is there. data: what marks the trees.

    Raises: ConfigError where the file is of other trees.
    """
    mark = {"label": label, "data": data, "trees": [tree.name for tree in trees]}
    if path.is_file():
        read = json.loads(path.read_text(encoding="utf-8"))
        if any(read[name] != value for name, value in mark.items()):
            raise ConfigError(f"{path} has the priors of another label or of other trees: give another --keep")
        return Asked(read["priors"], read["prior_ms"])
    found = ask(priors_for, trees)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**mark, **asdict(found)}), encoding="utf-8")
    return found


def measure(
    label: str, asked: Asked, trees: Sequence[RecordedTree], budgets: Sequence[int], seeds: int, steps: int
) -> Measured:
    """Replay searches on all trees with a policy's priors. budgets: of each tree. steps: of the greedy line."""
    found = Measured(label, prior_ms=asked.prior_ms)
    for tree, priors, budget in zip(trees, asked.priors, budgets, strict=True):
        found.curves.append([replay_search(tree, Mcts(), priors, budget, seed) for seed in range(seeds)])
        found.greedy.append(replay_search(tree, Greedy(), priors, steps + 1))
    return found


def interval(values: NDArray[np.float64], rng: np.random.Generator) -> tuple[float, float]:
    """95% interval of the mean over trees. values: [trees]."""
    drawn = values[rng.integers(len(values), size=(DRAWS, len(values)))].mean(axis=1)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return float(low), float(high)


def fewer(
    base: NDArray[np.float64], other: NDArray[np.float64], rng: np.random.Generator
) -> tuple[float, float, float]:
    """Ratio of the mean evaluations of two policies on the same trees, with its 95% interval."""
    at = rng.integers(len(base), size=(DRAWS, len(base)))
    low, high = np.percentile(base[at].mean(axis=1) / other[at].mean(axis=1), [2.5, 97.5])
    return float(base.mean() / other.mean()), float(low), float(high)


def tell(report: Report, found: Sequence[Measured], budgets: Sequence[int], seed: int) -> None:
    """The table, and the same as data."""
    rng = np.random.default_rng(seed)
    counts = {each.label: each.evaluations(budgets) for each in found}
    names = ("priors", "evaluations to 95%", "reached", *(f"fewer than {name}" for name in ALWAYS))
    report.say(header(*names, "greedy speedup", "share of best", "ms a version"))
    rows = []
    for each in found:
        evaluations = counts[each.label]
        low, high = interval(evaluations, rng)
        ratios = [fewer(counts[name], evaluations, rng) for name in ALWAYS]
        lines = np.asarray([curve.values[-1] for curve in each.greedy])
        share = float(np.mean([curve.values[-1] / curve.best for curve in each.greedy]))
        report.say(
            row(
                each.label,
                f"{evaluations.mean():.2f} [{low:.2f}, {high:.2f}]",
                f"{each.reached():.1%}",
                *(f"{ratio:.2f}x [{least:.2f}, {most:.2f}]" for ratio, least, most in ratios),
                f"{2 ** lines.mean():.2f}x",
                f"{share:.1%}",
                f"{np.median(each.prior_ms):.2f}",
            )
        )
        rows.append(
            {
                "label": each.label,
                "evaluations": evaluations.tolist(),
                "mean": float(evaluations.mean()),
                "interval": [low, high],
                "reached": each.reached(),
                "fewer": dict(zip(ALWAYS, ratios, strict=True)),
                "greedy_log2": lines.tolist(),
                "greedy_share": share,
            }
        )
    report.data["policies"] = rows


def draw(found: Sequence[Measured], count: int, path: Path, seed: int) -> None:
    """Share of the best known log2 speedup against evaluations; with 95% intervals as long as they can be told apart."""
    from mtmc.export.plots import INK, line_look, new_figure, save_figure

    rng = np.random.default_rng(seed)
    figure, axes = new_figure(8.6, 4.8)
    xs = range(1, count + 1)
    for index, each in enumerate(found):
        shares, (style, colour) = each.shares(count), line_look(index)
        if len(found) <= BANDS:
            bounds = [interval(shares[:, at], rng) for at in range(count)]
            axes.fill_between(xs, *zip(*bounds, strict=True), color=colour, alpha=0.14, linewidth=0)
        axes.plot(xs, shares.mean(axis=0), style, color=colour, linewidth=2, label=each.label)
    axes.set_xlabel("evaluations, the root's included", color=INK)
    axes.set_ylabel("share of the best known log2 speedup", color=INK)
    axes.set_title("MCTS on recorded test trees, by its priors", loc="left", fontsize=11, color=INK)
    axes.legend(frameon=False, fontsize=8, labelcolor=INK, loc="lower right")
    save_figure(figure, path)


def read(arguments: argparse.Namespace) -> list[RecordedTree]:
    """The trees in which there is something to find. Raises: ConfigError for none."""
    split = None if arguments.split == "all" else arguments.split
    trees = [tree for folder in arguments.data for tree in load_trees(folder, split)]
    trees = [tree for tree in trees if tree.best_value > LEAST_GAIN][: arguments.trees or None]
    if not trees:
        raise ConfigError(f"there is no tree to search in the split {arguments.split}: record more tasks")
    return [open_space(tree, arguments.seed) for tree in trees] if arguments.decoys else trees


def main() -> None:
    """See the text of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", type=Path, metavar="FOLDER", help="recorded trees")
    parser.add_argument("--policy", action="append", default=[], metavar="[LABEL=]NAME[,SETTING=VALUE ...]")
    parser.add_argument("--split", default="test", choices=("train", "validation", "test", "all"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the intervals and the decoys")
    parser.add_argument(
        "--budget", type=int, default=0, help="evaluations of a search; 0: as many as the tree has versions"
    )
    parser.add_argument("--steps", type=int, default=8, help="evaluations of the greedy line")
    parser.add_argument("--trees", type=int, default=0, help="the first so many trees; 0: all")
    parser.add_argument(
        "--decoys", action="store_true", help="no action space: what is not legal is offered, and fails"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="of priors: see above")
    parser.add_argument("--only-ask", action="store_true", help="fill --keep with those of --policy and replay nothing")
    parser.add_argument("--out", type=Path, help="write OUT.md, OUT.json and OUT.png")
    arguments = parser.parse_args()
    if arguments.only_ask and arguments.keep is None:
        parser.error("--only-ask keeps nothing: give --keep FOLDER")
    named = arguments.policy if arguments.only_ask else (*ALWAYS, *arguments.policy)
    policies = [(label, partial(priors_of, policy=policy)) for label, policy in map(made, named)]
    if not arguments.only_ask:
        policies.append((HINDSIGHT, hindsight))
    trees = read(arguments)
    asked = [ask_or_read(label, each, trees, arguments) for label, each in policies]
    if not arguments.only_ask:
        compare([label for label, _ in policies], asked, trees, arguments)


def ask_or_read(
    label: str,
    priors_for: Callable[[RecordedTree], Priors],
    trees: Sequence[RecordedTree],
    arguments: argparse.Namespace,
) -> Asked:
    """The priors of one policy, see --keep."""
    if arguments.keep is None:
        return ask(priors_for, trees)
    data = f"{data_hash(arguments.data)}{f', decoys of seed {arguments.seed}' if arguments.decoys else ''}"
    return kept(label, priors_for, trees, arguments.keep / f"{label.replace('/', '_')}.json", data)


def compare(
    labels: Sequence[str], asked: Sequence[Asked], trees: Sequence[RecordedTree], arguments: argparse.Namespace
) -> None:
    """Replay the searches, tell and draw."""
    budgets = [arguments.budget or len(tree.nodes) for tree in trees]
    with Report("Evaluations that a search needs, by its priors", arguments.out) as report:
        known = sum(len(node.known) for tree in trees for node in tree.nodes)
        best = 2 ** np.mean([tree.best_value for tree in trees])
        report.say(
            f"{len(trees)} trees (split {arguments.split}, data {data_hash(arguments.data)}) with {known} known actions, "
            f"best known speedup {best:.2f}x in geometric mean; {arguments.seeds} seeds; goal {REACHED:.0%} of it; budget "
            f"{arguments.budget or 'the whole tree'}{'; no action space' if arguments.decoys else ''}.\n"
        )
        found = [
            measure(label, each, trees, budgets, arguments.seeds, arguments.steps)
            for label, each in zip(labels, asked, strict=True)
        ]
        tell(report, found, budgets, arguments.seed)
        report.data["trees"] = [tree.name for tree in trees]
        if arguments.out is not None:
            draw(found, min(SHOWN, math.ceil(np.median(budgets))), Path(f"{arguments.out}.png"), arguments.seed)


if __name__ == "__main__":
    main()

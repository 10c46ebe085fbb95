"""How many evaluations each strategy needs on recorded trees of tasks that no policy has learned from, by its priors.

    PYTHONPATH=. python benchmarks/strategy_replays.py results/trees_h200 --out results/strategy_replays

Each strategy, and mcts with each value of `untried`, is replayed (`mtmc.rl.replays`) on every tree that is not for training,
with several seeds and as many evaluations as the tree has versions. Told are the evaluations (the root's included) until the
best version has 95% and 99% of the best known speedup, the mean over trees and seeds; where that is not reached, all of the
tree's count. What stands in brackets is a 95% interval: trees are drawn anew, with all their seeds. "hindsight" is an upper
bound: the priors of one who knows the tree. Trees whose root is good enough itself are left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import Report
from benchmarks.figures import header, row
from benchmarks.policy_priors import hindsight, interval
from mtmc.protocols import Strategy
from mtmc.rl.replays import Priors, priors_of, replay_search
from mtmc.rl.train.data import data_hash
from mtmc.rl.train.validate import LEAST_GAIN
from mtmc.rl.trees import RecordedTree, load_trees
from mtmc.search.components import make
from mtmc.search.strategies import STRATEGIES, Mcts

SHARES = (0.95, 0.99)
POLICIES = ("compact", "heuristic", "uniform")
HINDSIGHT = "hindsight"


def compared() -> dict[str, Strategy]:
    """The strategies by their labels."""
    others = {name: maker() for name, maker in STRATEGIES.items() if name != "mcts"}
    return {"mcts": Mcts(), **{f"mcts, {each}": Mcts(untried=each) for each in ("reduced", "zero")}, **others}


def evaluations(
    strategy: Strategy, trees: Sequence[RecordedTree], priors: Sequence[Priors], seeds: int
) -> dict[float, NDArray[np.float64]]:
    """For each of `SHARES`, [trees], mean over the seeds: evaluations to that share of the best known speedup."""
    means: dict[float, list[float]] = {share: [] for share in SHARES}
    for tree, given in zip(trees, priors, strict=True):
        budget = len(tree.nodes)
        curves = [replay_search(tree, strategy, given, budget, seed) for seed in range(seeds)]
        for share, found in means.items():
            found.append(float(np.mean([curve.evaluations_to(share) or budget for curve in curves])))
    return {share: np.asarray(found) for share, found in means.items()}


def tell(policy: str, trees: Sequence[RecordedTree], priors: Sequence[Priors], seeds: int, report: Report) -> None:
    """The table of one policy's priors."""
    report.say(f"\n## Priors: {policy}\n")
    report.say(header("strategy", *(f"evaluations to {share:.0%}" for share in SHARES)))
    for label, strategy in compared().items():
        found = evaluations(strategy, trees, priors, seeds)
        cells = []
        for each in found.values():
            low, high = interval(each, np.random.default_rng(0))
            cells.append(f"{each.mean():.2f} [{low:.2f}, {high:.2f}]")
        report.say(row(label, *cells))
        report.data.setdefault(policy, {})[label] = {f"{share:g}": each.tolist() for share, each in found.items()}


def main() -> None:
    """See the text of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", type=Path, metavar="FOLDER", help="recorded trees")
    parser.add_argument("--policies", nargs="*", default=list(POLICIES))
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--trees", type=int, default=0, help="the first so many trees; 0: all")
    parser.add_argument("--out", type=Path, help="write OUT.md and OUT.json")
    arguments = parser.parse_args()
    trees = [tree for folder in arguments.data for tree in load_trees(folder)]
    trees = [tree for tree in trees if tree.split != "train" and tree.best_value > LEAST_GAIN]
    trees = trees[: arguments.trees or None]
    with Report("Evaluations that a search needs, by its strategy", arguments.out) as report:
        report.say(
            f"{len(trees)} trees for validation and tests (data {data_hash(arguments.data)}), {arguments.seeds} seeds. "
            "The defaults of best_first, beam and evolution were chosen on these very trees."
        )
        report.data["trees"] = [tree.name for tree in trees]
        for policy in arguments.policies:
            made = make("policy", policy, {})
            tell(policy, trees, [priors_of(tree, made) for tree in trees], arguments.seeds, report)
        tell(HINDSIGHT, trees, [hindsight(tree) for tree in trees], arguments.seeds, report)


if __name__ == "__main__":
    main()

"""Searches on recorded trees with a model of gains against the same without it, paired by tree.

    PYTHONPATH=. python benchmarks/gain_replays.py results/trees_h200 --out results/gain_replays
    PYTHONPATH=. python benchmarks/gain_replays.py results/trees_h200 --crossed --policies heuristic uniform --out page

FOLDER is a data set (`mtmc collect`). By default its trees that are not for training are replayed, with the model of
`--gain`, which learned from those for training alone. With `--crossed` all trees are: each is replayed with a model that was
trained on the tasks of the other folds. A policy that was trained on trees has seen those for training: give others then.

Told are the evaluations until 95%, 99% and 100% of the best known speedup is found, where it is never found all of the
tree's: mean over trees and seeds, the difference to the same strategy without the model with its 95% interval (trees are
drawn anew, with all their seeds), on how many trees fewer, as many and more were needed, and the p of a two-sided test that
turns the signs of the differences, corrected by Holm for the tests of the table. The last table has the strategies that
are told of gains against `mcts` with its defaults, which is what a search does by default.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import Report
from benchmarks.experiment_page import Table
from benchmarks.policy_priors import interval
from mtmc.agents.policies.learned.gain.model import load_gains
from mtmc.errors import ConfigError
from mtmc.protocols import Strategy
from mtmc.rl.comparison import SAME, holm, sign_test
from mtmc.rl.gain.crossed import crossed
from mtmc.rl.gain.data import rows_of
from mtmc.rl.gain.settings import GainSettings
from mtmc.rl.replays import Gains, Priors, gains_of, priors_of, replay_search
from mtmc.rl.train.data import data_hash
from mtmc.rl.train.validate import LEAST_GAIN
from mtmc.rl.trees import RecordedTree, load_trees
from mtmc.search.components import make
from mtmc.search.strategies import BestFirst, Mcts

SHARES = (0.95, 0.99, 1.0)
POLICIES = ("compact", "heuristic", "uniform")
SPREADS = (0.0, 1.0)
DEFAULT = "mcts"
PAIRS: dict[str, tuple[Strategy, Strategy]] = {
    DEFAULT: (Mcts(), Mcts(untried="predicted")),
    "best_first": (BestFirst(), BestFirst()),
}
"""Label -> without and with a model of gains."""
Counts = NDArray[np.float64]
"""[trees, shares]: evaluations, mean over the seeds."""


@dataclass(frozen=True)
class Difference:
    """Evaluations less than without the model (below 0: fewer), mean over trees, with its 95% interval; on how many trees
    fewer, as many and more; p of the test."""

    mean: float
    low: float
    high: float
    fewer: int
    same: int
    more: int
    p: float


def difference(counts: NDArray[np.float64], base: NDArray[np.float64]) -> Difference:
    """See `Difference`. counts, base: [trees]."""
    found = counts - base
    low, high = interval(found, np.random.default_rng(0))
    fewer, more = int((found < -SAME).sum()), int((found > SAME).sum())
    p = sign_test(found, np.random.default_rng(0))
    return Difference(float(found.mean()), low, high, fewer, len(found) - fewer - more, more, p)


def needed(
    trees: Sequence[RecordedTree],
    strategy: Strategy,
    priors: Sequence[Priors],
    gains: Sequence[Gains | None],
    seeds: int,
) -> Counts:
    """Evaluations to each of `SHARES`."""
    found = np.zeros((len(trees), len(SHARES)))
    for place, (tree, given, told) in enumerate(zip(trees, priors, gains, strict=True)):
        most = len(tree.nodes)
        curves = [replay_search(tree, strategy, given, most, seed, told) for seed in range(seeds)]
        found[place] = [np.mean([curve.evaluations_to(share) or most for curve in curves]) for share in SHARES]
    return found


def table(title: str, rows: Sequence[tuple[str, Counts, Counts | None]]) -> Table:
    """A table. rows: label, evaluations, and those of what it is held against."""
    differences = {
        (at, share): difference(counts[:, share], base[:, share])
        for at, (_, counts, base) in enumerate(rows)
        if base is not None
        for share in range(len(SHARES))
    }
    ps = dict(zip(differences, holm([each.p for each in differences.values()]), strict=True))
    made = []
    for at, (label, counts, _) in enumerate(rows):
        cells = [label]
        for share in range(len(SHARES)):
            cells.append(f"{counts[:, share].mean():.2f}")
            each = differences.get((at, share))
            cells.append("" if each is None else _shown(each, ps[at, share]))
        made.append(tuple(cells))
    head = [cell for share in SHARES for cell in (f"to {share:.0%}", "difference, fewer / same / more, p")]
    return Table(title, ("search", *head), tuple(made))


def _shown(found: Difference, p: float) -> str:
    told = f"{found.mean:+.2f} [{found.low:+.2f}, {found.high:+.2f}], {found.fewer} / {found.same} / {found.more}, "
    return told + (f"{p:.3f}" if p >= 0.001 else "< 0.001")


def label_of(name: str, spreads: float) -> str:
    """Of a search with the model."""
    return f"{name}, gains" + (f" and {spreads:g} spreads" if spreads else "")


def replayed_policy(
    trees: Sequence[RecordedTree], priors: Sequence[Priors], gains: dict[float, list[Gains | None]], seeds: int
) -> dict[str, Counts]:
    """Evaluations of each strategy without and with the model, by label."""
    nothing: list[Gains | None] = [None] * len(trees)
    found: dict[str, Counts] = {}
    for name, (without, with_) in PAIRS.items():
        found[name] = needed(trees, without, priors, nothing, seeds)
        for spreads, told in gains.items():
            found[label_of(name, spreads)] = needed(trees, with_, priors, told, seeds)
    return found


def tables_of(policy: str, found: dict[str, Counts], spreads: Sequence[float]) -> list[Table]:
    """Each strategy against itself without the model, and all against the default."""
    pairs: list[tuple[str, Counts, Counts | None]] = []
    for name in PAIRS:
        pairs.append((name, found[name], None))
        pairs += [(label, found[label], found[name]) for label in (label_of(name, each) for each in spreads)]
    against = [(label, counts, None if label == DEFAULT else found[DEFAULT]) for label, counts in found.items()]
    return [
        table(f"Priors {policy}: with the model against without", pairs),
        table(f"Priors {policy}: against {DEFAULT}", against),
    ]


def models_for(
    trees: Sequence[RecordedTree], arguments: argparse.Namespace, tell: Callable[[str], None]
) -> Callable[[int, float], Gains | None]:
    """From the number of a tree and spreads to gains, by a model that has not seen the tree's task."""
    if not arguments.crossed:
        model = load_gains(arguments.gain)
        return lambda at, spreads: gains_of(trees[at], model, spreads)
    settings = GainSettings(seed=arguments.seed, folds=arguments.folds)
    by_tree = {at: fold.model for fold in crossed(rows_of(trees), settings, tell) for at in fold.tasks}
    return lambda at, spreads: gains_of(trees[at], by_tree[at], spreads) if at in by_tree else None


def arguments_of() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="FOLDER", help="recorded trees")
    parser.add_argument("--gain", default="trained", help="the model: trained, or a file")
    parser.add_argument("--crossed", action="store_true", help="replay all trees, by models of the other folds")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the folds and their models")
    parser.add_argument("--policies", nargs="*", default=list(POLICIES))
    parser.add_argument("--spreads", nargs="*", type=float, default=list(SPREADS), help="see agents.gain_spreads")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--trees", type=int, default=0, help="the first so many trees; 0: all")
    parser.add_argument("--out", type=Path, help="write OUT.md and OUT.json")
    arguments = parser.parse_args()
    if arguments.seeds < 1:
        parser.error("--seeds is 1 or more")
    return arguments


def main() -> None:
    """See the text of this file."""
    arguments = arguments_of()
    all_trees = [tree for tree in load_trees(arguments.data) if arguments.crossed or tree.split != "train"]
    all_trees = all_trees[: arguments.trees or None]
    kept = [at for at, tree in enumerate(all_trees) if tree.best_value > LEAST_GAIN]
    if not kept:
        raise ConfigError(f"there is nothing to find in {len(all_trees)} trees: record others")
    with Report("Searches with predicted gains, on recorded trees", arguments.out) as report:
        given = models_for(all_trees, arguments, lambda text: print(text, flush=True))
        trees = [all_trees[at] for at in kept]
        gains = {spreads: [given(at, spreads) for at in kept] for spreads in arguments.spreads}
        how = f"each by a model of {arguments.folds} folds by task" if arguments.crossed else "none of them trained on"
        report.say(f"{len(trees)} trees (data {data_hash([arguments.data])}), {how}; {arguments.seeds} seeds.")
        report.data["trees"] = [tree.name for tree in trees]
        for policy in arguments.policies:
            made = make("policy", policy, {})
            found = replayed_policy(trees, [priors_of(tree, made) for tree in trees], gains, arguments.seeds)
            for each in tables_of(policy, found, arguments.spreads):
                report.say(each.markdown)
            report.data[policy] = {label: counts.tolist() for label, counts in found.items()}


if __name__ == "__main__":
    main()

"""Strategies x policies x budgets on recorded trees: one experiment, one command, one page.

    PYTHONPATH=. python benchmarks/strategy_replays.py results/trees_h200 --out results/strategy_replays
    PYTHONPATH=. python benchmarks/strategy_replays.py runs/sweep --policies uniform --budgets 8 16 --out page

FOLDER is a data set (`mtmc collect`; of its trees those that are not for training), or holds runs: their trees have times
and prices, so the page's curves also go by seconds and US dollars, of coder and evaluator.

Each strategy, and mcts with each value of `untried`, is replayed (`mtmc.rl.replays`) with the priors of each policy, with
several seeds, until it has seen all of a tree. Trees whose root is good enough itself are left out. "hindsight" is an upper
bound: the priors of one who knows the tree; --no-hindsight leaves it out.

Told is, after each of `--budgets` evaluations (the root's included), the best speedup: geometric mean over trees and seeds
with a 95% interval (trees are drawn anew, with all their seeds), arithmetic mean, and median over trees. Beside it stands
the ratio to the strategy of `--baseline` on the same trees, with its interval, on how many trees it found more, the same and
less, and the p of a two-sided test that turns the signs of the trees' differences, corrected by Holm for the tests of its
table.
Then come the evaluations to 95% and 99% of the best known speedup; where that is not reached, all of the tree's count.

OUT.md and OUT.json have the tables, OUT.png the curves, and OUT.html both, as a page that needs nothing else.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import Report
from benchmarks.experiment_page import Experiment, Line, Table, write_page
from benchmarks.policy_priors import hindsight, interval
from mtmc.errors import ConfigError
from mtmc.protocols import Strategy
from mtmc.rl.comparison import Paired, Standing, holm, paired, standing, values_at
from mtmc.rl.dataset import is_dataset
from mtmc.rl.priced import PricedTree, priced_trees
from mtmc.rl.replays import Curve, Priors, priors_of, replay_search
from mtmc.rl.train.data import data_hash
from mtmc.rl.train.validate import LEAST_GAIN
from mtmc.rl.trees import RecordedTree, load_trees
from mtmc.search.components import make
from mtmc.search.strategies import STRATEGIES, Mcts

SHARES = (0.95, 0.99)
POLICIES = ("compact", "heuristic", "uniform")
HINDSIGHT = "hindsight"
BUDGETS = (8, 16, 32, 64)
Curves = list[list[Curve]]
"""[trees][seeds]."""


def compared() -> dict[str, Strategy]:
    """The strategies by their labels."""
    others = {name: maker() for name, maker in STRATEGIES.items() if name != "mcts"}
    return {"mcts": Mcts(), **{f"mcts, {each}": Mcts(untried=each) for each in ("reduced", "zero")}, **others}


def replayed(strategy: Strategy, trees: Sequence[RecordedTree], priors: Sequence[Priors], seeds: int) -> Curves:
    """Searches on all trees, until each has seen all of its tree."""
    return [
        [replay_search(tree, strategy, given, len(tree.nodes), seed) for seed in range(seeds)]
        for tree, given in zip(trees, priors, strict=True)
    ]


def sizes_of(trees: Sequence[RecordedTree]) -> list[int]:
    """Versions of each tree, which is what a search that never gets there is counted with."""
    return [len(tree.nodes) for tree in trees]


def evaluations(curves: Curves, sizes: Sequence[int]) -> dict[float, NDArray[np.float64]]:
    """For each of `SHARES`, [trees], mean over the seeds: evaluations to that share of the best known speedup.

    sizes: of each tree, what counts where that is not reached.
    """
    return {
        share: np.asarray(
            [
                float(np.mean([curve.evaluations_to(share) or size for curve in some]))
                for size, some in zip(sizes, curves, strict=True)
            ]
        )
        for share in SHARES
    }


@dataclass(frozen=True)
class Entry:
    """One kind of search after one budget, and against the baseline (None: it is that itself)."""

    label: str
    standing: Standing
    paired: Paired | None


def entries(found: dict[str, Curves], budget: int, baseline: str) -> list[Entry]:
    """What each kind of search found after so many evaluations, on the same trees."""
    values = {label: values_at(curves, budget) for label, curves in found.items()}
    return [
        Entry(
            label,
            standing(each, np.random.default_rng(0)),
            None if label == baseline else paired(each, values[baseline], np.random.default_rng(0)),
        )
        for label, each in values.items()
    ]


def table(title: str, what: str, made: Sequence[Entry], baseline: str) -> Table:
    """The table of one budget. what: what differs from row to row."""
    head = (what, "geometric mean", "mean", "median", f"times {baseline}", "more / same / less", "p")
    ps = iter(holm([each.paired.p for each in made if each.paired is not None]))
    rows = []
    for each in made:
        it, other = each.standing, each.paired
        cells = [f"{it.geometric_mean:.3f}x [{it.low:.3f}, {it.high:.3f}]", f"{it.mean:.3f}x", f"{it.median:.3f}x"]
        if other is not None:
            p = next(ps)
            counts = f"{other.won} / {other.tied} / {other.lost}"
            cells += [
                f"{other.ratio:.3f} [{other.low:.3f}, {other.high:.3f}]",
                counts,
                f"{p:.3f}" if p >= 0.001 else "< 0.001",
            ]
        rows.append((each.label, *cells, *[""] * (len(head) - 1 - len(cells))))
    return Table(title, head, tuple(rows))


def goal_table(title: str, found: dict[str, Curves], sizes: Sequence[int]) -> Table:
    """Evaluations to `SHARES` of the best known speedup."""
    rows = []
    for label, curves in found.items():
        cells = []
        for each in evaluations(curves, sizes).values():
            low, high = interval(each, np.random.default_rng(0))
            cells.append(f"{each.mean():.2f} [{low:.2f}, {high:.2f}]")
        rows.append((label, *cells))
    return Table(title, ("strategy", *(f"evaluations to {share:.0%}" for share in SHARES)), tuple(rows))


def read(folders: Sequence[Path], most: int) -> tuple[list[RecordedTree], list[PricedTree]]:
    """The trees in which there is something to find, and the same with their times and prices where all have them.

    Raises: ConfigError where there is none.
    """
    trees: list[RecordedTree] = []
    priced: list[PricedTree] = []
    for folder in folders:
        if is_dataset(folder):
            trees += [tree for tree in load_trees(folder) if tree.split != "train"]
        else:
            priced += priced_trees(folder)
    trees += [each.tree for each in priced]
    kept = [tree for tree in trees if tree.best_value > LEAST_GAIN][: most or None]
    if not kept:
        raise ConfigError(f"there is nothing to find in {len(trees)} trees: record others, or longer searches")
    known = {id(each.tree): each for each in priced}
    return kept, [known[id(tree)] for tree in kept] if all(id(tree) in known for tree in kept) else []


def told(
    policy: str, found: dict[str, Curves], sizes: Sequence[int], budgets: Sequence[int], baseline: str
) -> list[Table]:
    """The tables of one policy's priors."""
    tables = [
        table(f"Priors {policy}, after {budget} evaluations", "strategy", entries(found, budget, baseline), baseline)
        for budget in budgets
    ]
    return [*tables, goal_table(f"Priors {policy}, evaluations to a goal", found, sizes)]


def across(found: dict[str, dict[str, Curves]], budgets: Sequence[int], baseline: str) -> list[Table]:
    """The tables of one strategy with the priors of each policy."""
    mine = {policy: each[baseline] for policy, each in found.items()}
    first = next(iter(mine))
    return [
        table(f"{baseline} by its priors, after {budget} evaluations", "priors", entries(mine, budget, first), first)
        for budget in budgets
    ]


def as_data(found: dict[str, Curves], sizes: Sequence[int], budgets: Sequence[int], baseline: str) -> dict[str, object]:
    """What the JSON file has of one policy's priors, by strategy."""
    made = {budget: {each.label: each for each in entries(found, budget, baseline)} for budget in budgets}
    return {
        label: {
            **{f"{share:g}": each.tolist() for share, each in evaluations(curves, sizes).items()},
            "after": {
                str(budget): {
                    **asdict(made[budget][label].standing),
                    "paired": None if (other := made[budget][label].paired) is None else asdict(other),
                    "log2": values_at(curves, budget).mean(axis=1).tolist(),
                }
                for budget in budgets
            },
        }
        for label, curves in found.items()
    }


def arguments_of() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", type=Path, metavar="FOLDER", help="recorded trees, or runs")
    parser.add_argument("--policies", nargs="*", default=list(POLICIES))
    parser.add_argument("--strategies", nargs="*", default=list(compared()), choices=list(compared()))
    parser.add_argument(
        "--budgets", nargs="*", type=int, default=list(BUDGETS), help="evaluations, the root's included"
    )
    parser.add_argument("--baseline", default="mcts", help="the strategy that the others are compared with")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--hindsight", action=argparse.BooleanOptionalAction, default=True, help="the upper bound")
    parser.add_argument("--trees", type=int, default=0, help="the first so many trees; 0: all")
    parser.add_argument("--out", type=Path, help="write OUT.md, OUT.json, OUT.png and OUT.html")
    arguments = parser.parse_args()
    if arguments.baseline not in arguments.strategies:
        parser.error(f"--baseline {arguments.baseline} is none of the strategies: {', '.join(arguments.strategies)}")
    if arguments.seeds < 1 or any(each < 1 for each in arguments.budgets):
        parser.error("--seeds and --budgets are 1 or more")
    return arguments


def main() -> None:
    """See the text of this file."""
    arguments = arguments_of()
    trees, priced = read(arguments.data, arguments.trees)
    sets = [folder for folder in arguments.data if is_dataset(folder)]
    budgets, baseline = arguments.budgets, arguments.baseline
    strategies = {label: each for label, each in compared().items() if label in arguments.strategies}
    with Report("Strategies, policies and budgets on recorded trees", arguments.out) as report:
        of = f"data {data_hash(sets)}" if sets else "of runs"
        about = f"{len(trees)} trees ({of}), {arguments.seeds} seeds. Ratios and tests are on the same trees, against "
        about += f"{baseline}. The defaults of best_first, beam and evolution were chosen on the trees of trees_h200."
        report.say(about)
        report.data["trees"] = [tree.name for tree in trees]
        found: dict[str, dict[str, Curves]] = {}
        tables: list[Table] = []

        def show(made: Sequence[Table]) -> None:
            tables.extend(made)
            for each in made:
                report.say(each.markdown)

        for policy in [*arguments.policies, *([HINDSIGHT] if arguments.hindsight else [])]:
            made = None if policy == HINDSIGHT else make("policy", policy, {})
            priors = [hindsight(tree) if made is None else priors_of(tree, made) for tree in trees]
            found[policy] = {
                label: replayed(each, trees, priors, arguments.seeds) for label, each in strategies.items()
            }
            show(told(policy, found[policy], sizes_of(trees), budgets, baseline))
            report.data[policy] = as_data(found[policy], sizes_of(trees), budgets, baseline)
        show(across(found, budgets, baseline))
        if arguments.out is not None:
            lines = [Line(policy, label, curves) for policy, each in found.items() for label, curves in each.items()]
            for path in write_page(Experiment(about, tuple(tables), tuple(lines), tuple(priced)), arguments.out):
                print(f"wrote {path}")


if __name__ == "__main__":
    main()

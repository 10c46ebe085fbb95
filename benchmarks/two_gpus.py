"""Evaluations a second on one GPU and on two of the same machine, over the workload of `sustained_rate.py`.

    PYTHONPATH=. python benchmarks/two_gpus.py --limit 300 --out results/two_gpus

Each round opens a new evaluator and evaluates versions that no other round has.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from benchmarks.common import Report, parser, settings_of
from benchmarks.figures import header, row
from benchmarks.sustained_rate import rate_of, run

TARGET = 1.8


def one_round(devices: str, number: int, arguments: argparse.Namespace) -> float:
    """Evaluations a second with these devices; the round's own report goes beside OUT."""
    given = {**vars(arguments), "setting": [*arguments.setting, f"devices={devices}"], "seed": arguments.seed + number}
    chosen = argparse.Namespace(**given)
    name = f"{arguments.out}_round{number}" if arguments.out else None
    with (
        Report(f"Round {number}: devices {devices}", Path(name) if name else None) as report,
        settings_of(chosen).open() as evaluator,
    ):
        found = run(evaluator, chosen, report)
    return rate_of([timed.ended for timed in found], arguments.warm_up).per_second


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--limit", type=int, default=300, help="versions of each round after the warm-up")
    options.add_argument("--warm-up", type=int, default=40)
    options.add_argument("--in-flight", type=int, default=64, help="evaluations asked for at the same time")
    options.add_argument("--rounds", nargs="*", default=["0", "0,1"], help="devices of each round")
    arguments = options.parse_args()
    rates: dict[str, list[float]] = {}
    with Report("One GPU against two", arguments.out) as report:
        for number, devices in enumerate(arguments.rounds):
            rates.setdefault(devices, []).append(one_round(devices, number, arguments))
            report.data["rates"] = rates
        report.say(header("devices", "evaluations a second", "rounds"))
        for devices, values in rates.items():
            report.say(row(devices, f"{statistics.fmean(values):.2f}", len(values)))
        first, *others = (statistics.fmean(values) for values in rates.values())
        for rate in others:
            verdict = "meets" if rate / first >= TARGET else "misses"
            report.say(f"\n**{rate / first:.2f}** times the evaluations a second ({verdict} the aim of {TARGET}).")
            report.data["ratio"] = rate / first


if __name__ == "__main__":
    main()

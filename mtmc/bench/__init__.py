"""Benchmarks: many problems, one search each, and a table that can be compared with others'.

    problem.py     Problem, Suite
    suites/        kernelbench, tritonbench, builtin, blocks, collections: one file each, one line in `SUITES`
    blocks/        the tasks of `suite=blocks`
    licence.py     what a collection of others says about its use
    settings.py selection.py candidates.py loading.py     which problems, which files are for them, Problem -> Task
    solve.py score.py     one problem to its row: by a search, or by candidates made elsewhere
    facts.py why.py failures.py row.py figures.py     what stands in a row and in the tables: pure but for reading a run
    worker.py worker_pool.py     one evaluator, several processes, each problem within its time
    folder.py report.py plot.py     what is kept, and how it is told
    bench.py       all of it together

Importing this loads neither torch nor triton.
"""

from __future__ import annotations

from mtmc.bench.bench import BenchResult, list_problems, run_bench
from mtmc.bench.figures import LevelFigures, by_level, fast_p, geometric_mean
from mtmc.bench.problem import Problem, Suite
from mtmc.bench.row import Failure, Row, Why
from mtmc.bench.settings import BenchSettings
from mtmc.bench.solve import SearchOptions
from mtmc.bench.suites import SUITES, open_suite

__all__ = [
    "SUITES",
    "BenchResult",
    "BenchSettings",
    "Failure",
    "LevelFigures",
    "Problem",
    "Row",
    "SearchOptions",
    "Suite",
    "Why",
    "by_level",
    "fast_p",
    "geometric_mean",
    "list_problems",
    "open_suite",
    "run_bench",
]

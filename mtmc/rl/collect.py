"""collect: trees recorded. Several at once, resumable, robust against being cut off.

The folder of a collection:

    collect.json          the settings, and what has come of them
    tasks.parquet, nodes.parquet, transitions.parquet      the data set, see `mtmc.rl.schema`
    runs/NAME/            the run of each task: a run like any other (`mtmc show`, `mtmc export`)
    parts/NAME/           its rows
    refused/NAME.txt      why a task was not taken

Evaluators live in the process that is started, one for each GPU, and each tree keeps to one of them, so that a GPU
prepares a task's reference once. The trees grow in processes of their own (`mtmc.rl.worker`).
"""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from mtmc.errors import ConfigError, RunError
from mtmc.evaluate.devices import cores
from mtmc.evaluate.shared import EvaluatorServer
from mtmc.files import write_whole
from mtmc.protocols import EvaluatorSettings
from mtmc.rl.given import Given, given_tasks, of_suite
from mtmc.rl.processes import process_pool
from mtmc.rl.schema import split_of
from mtmc.rl.settings import CollectSettings
from mtmc.rl.worker import PARTS, REFUSED, TreeResult, WorkerConfig, done, grow, part_folders
from mtmc.search.strategies.common import derive_seed
from mtmc.tree import source_hash

_log = logging.getLogger(__name__)

SUMMARY = "collect.json"
FIXED = ("seed", "evaluations", "depth", "blind", "complete", "focus", "batch", "evaluator", "suite", "path")
"""Settings that a collection keeps when it goes on; more tasks, other jobs and more minutes are allowed."""
LATER = {"suite": "", "path": ""}
"""Of `FIXED`, what older collections do not know, with what they have."""
TREES_PER_GPU = 3
MOST_FAILED = 8
"""Trees that may fail one after another: the evaluator may have failed with one of them, not with all."""
SPARE = 0.25
"""Share of tasks that are kept at hand for those that are refused."""

OnResult = Callable[[TreeResult], None]


@dataclass(frozen=True)
class Collected:
    """What a collection holds. sizes: of the data set's files in bytes. left: trees that were asked for and are
    not finished."""

    tasks: int
    nodes: int
    transitions: int
    evaluations: int
    sizes: Mapping[str, int]
    left: int


def collect(
    settings: CollectSettings, evaluator: Any, recorded_as: Mapping[str, Any], out: Path, on_result: OnResult
) -> Collected:
    """Grow the trees, or what is left of them, and write the data set.

    evaluator: settings of one (with `open`), or an evaluator. recorded_as: its name and settings. on_result: called as trees
    end, from this thread.

    Raises: ConfigError for a folder with a collection of other settings; RunError where a process dies by itself, or
    `MOST_FAILED` trees fail one after another (the same command goes on); EvaluatorError where there is no evaluator.
    """
    settings = as_many(settings)
    _check_folder(settings, recorded_as, out)
    started = time.time()
    deadline = None if settings.minutes is None else started + 60 * settings.minutes
    excluded = _excluded(settings)
    with _served(evaluator) as servers:
        config = WorkerConfig(settings, out, servers, dict(recorded_as), excluded, deadline)
        _grow_all(config, settings.jobs or _jobs(evaluator, len(servers)), on_result)
    return write_collection(settings, recorded_as, out)


def write_collection(settings: CollectSettings, recorded_as: Mapping[str, Any], out: Path) -> Collected:
    """The data set of all trees that are recorded so far, and the summary beside it."""
    from mtmc.rl.dataset import concatenated, read_tables, write_tables

    folders = part_folders(out)
    if not folders:
        raise RunError(f"no tree was recorded in {out}: see {out / REFUSED} for the reasons, or give it more minutes")
    tables = concatenated([read_tables(folder) for folder in folders])
    sizes = write_tables(tables, out)
    transitions = tables["transitions"].num_rows - tables["transitions"]["child"].null_count
    evaluations = sum(tables["tasks"]["evaluations"].to_pylist())
    left = max(0, settings.tasks - sum(tables["tasks"]["finished"].to_pylist()))
    found = Collected(tables["tasks"].num_rows, tables["nodes"].num_rows, transitions, evaluations, sizes, left)
    data = {"settings": _fixed(settings, recorded_as), **asdict(found), "files": _hashes(out, sizes)}
    write_whole(out / SUMMARY, json.dumps(data, indent=1) + "\n")
    return found


def as_many(settings: CollectSettings) -> CollectSettings:
    """The settings, with as many tasks as a suite has where more are asked for. Raises: ConfigError where it has none."""
    if not settings.suite:
        return settings
    there = sum(1 for _ in of_split(of_suite(settings), settings.split))
    if not there:
        which = f"of the split {settings.split}" if settings.split else f"from number {settings.first} on"
        raise ConfigError(f"suite={settings.suite} has no task {which}: use a smaller first, or another split")
    return replace(settings, tasks=min(settings.tasks, there))


def seeded(settings: CollectSettings, given: Given) -> CollectSettings:
    """The settings of one tree: its draws are its own."""
    return replace(settings, seed=derive_seed(settings.seed, "tree", given.index) % 2**31)


def _grow_all(config: WorkerConfig, jobs: int, on_result: OnResult) -> None:
    """Trees until there are as many as asked for. Raises: RunError where a process died by itself."""
    settings = config.settings
    wanted = of_split(given_tasks(settings), settings.split)
    coming = enumerate(itertools.islice(wanted, _most(settings)))
    pool = process_pool(jobs)
    ended_well = False
    try:
        _hand_out(pool, jobs, coming, config, on_result)
        ended_well = True
    except BrokenProcessPool as error:
        raise RunError(f"a process that grew a tree died ({error}); the same command goes on") from error
    finally:  # after an error nobody waits: the processes end when their evaluator is gone
        pool.shutdown(wait=ended_well, cancel_futures=True)


def _hand_out(
    pool: ProcessPoolExecutor,
    jobs: int,
    coming: Iterator[tuple[int, Given]],
    config: WorkerConfig,
    on_result: OnResult,
) -> None:
    """Raises: RunError where nothing but failures comes back."""
    taken, failed, under_way = 0, 0, dict[Future[TreeResult], str]()
    while True:
        while len(under_way) < jobs and taken + len(under_way) < config.settings.tasks and not _late(config):
            number, given = next(coming, (0, None))
            if given is None:
                break
            if done(config.out, given.name):
                taken += (config.out / PARTS / given.name).exists()
                continue
            each = replace(config, settings=seeded(config.settings, given))
            under_way[pool.submit(grow, each, given, number)] = given.name
        if not under_way:
            return
        for future in wait(under_way, return_when=FIRST_COMPLETED).done:
            del under_way[future]
            result = future.result()
            taken += result.status not in ("refused", "failed")
            on_result(result)
            failed = failed + 1 if result.status == "failed" else 0
            if failed >= MOST_FAILED:
                raise RunError(f"{failed} trees failed one after another, the last with: {result.reason}")


def of_split(tasks: Iterator[Given], split: str) -> Iterator[Given]:
    """The tasks of a split; all of them for ""."""
    return (each for each in tasks if not split or split_of(source_hash(each.text)) == split)


def _most(settings: CollectSettings) -> int:
    return int(settings.tasks * (1 + SPARE)) + 10


def _late(config: WorkerConfig) -> bool:
    return config.deadline is not None and time.time() >= config.deadline


@contextmanager
def _served(evaluator: Any) -> Iterator[tuple[tuple[str, bytes], ...]]:
    """The evaluators at work, and where they can be asked."""
    with ExitStack() as stack:
        opened = []
        for part in split_by_device(evaluator):
            one = part.open() if isinstance(part, EvaluatorSettings) else part
            if one is not evaluator:
                stack.callback(one.close)
            opened.append(one)
        servers = [EvaluatorServer(each) for each in opened]
        for server in servers:
            stack.callback(server.close)
        yield tuple((server.address, server.key) for server in servers)


def split_by_device(evaluator: Any) -> list[Any]:
    """One evaluator's settings for each GPU where it has several, each with its share of the cores; else as it is.

    Raises: EvaluatorError where there is no GPU; ConfigError for one that does not exist.
    """
    from mtmc.evaluate.gpu import GpuSettings

    if not isinstance(evaluator, GpuSettings):
        return [evaluator]
    from mtmc.evaluate.devices import visible_devices

    devices = visible_devices(evaluator.devices)
    builders = evaluator.builders or max(1, cores() // (2 * len(devices)))
    return [replace(evaluator, devices=device.index, builders=builders) for device in devices]


def _jobs(evaluator: Any, servers: int) -> int:
    """Trees at once: while one is looked at for its next actions, others keep the evaluator busy; a lab is busy with one."""
    from mtmc.evaluate.gpu import GpuSettings

    return TREES_PER_GPU * servers if isinstance(evaluator, GpuSettings) else 1


def _excluded(settings: CollectSettings) -> dict[str, str]:
    if not settings.benchmark:
        return {}
    from mtmc.rl.benchmark import benchmark_keys

    return benchmark_keys(Path(settings.benchmark).expanduser())


def _check_folder(settings: CollectSettings, recorded_as: Mapping[str, Any], out: Path) -> None:
    """Raises: ConfigError where the folder holds a collection of other settings; RunError where it cannot be made."""
    path = out / "settings.json"
    wanted = _fixed(settings, recorded_as)
    if path.exists():
        found = {**LATER, **json.loads(path.read_text(encoding="utf-8"))}
        for name in FIXED:
            if found.get(name) != wanted[name]:
                fix = "use the same settings, or another out="
                raise ConfigError(f"{out} holds a collection with {name}={found.get(name)}, not {wanted[name]}: {fix}")
        return
    write_whole(path, json.dumps(wanted, indent=1) + "\n")


def _fixed(settings: CollectSettings, recorded_as: Mapping[str, Any]) -> dict[str, Any]:
    plain = {**asdict(settings), "evaluator": recorded_as["name"]}
    return {name: plain[name] for name in FIXED}


def _hashes(out: Path, names: Mapping[str, int]) -> dict[str, str]:
    import hashlib

    return {name: hashlib.sha256((out / f"{name}.parquet").read_bytes()).hexdigest() for name in names}


def settings_of_part(part: Any) -> dict[str, Any]:
    """The settings of an evaluator as plain data, {} where it has none."""
    return {each.name: getattr(part, each.name) for each in fields(part)} if is_dataclass(part) else {}

"""Compiling for a baseline before the device is taken: whose turn it is, and that the next process finds it done."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mtmc.errors import EvaluatorError
from mtmc.evaluate.baselines import BaselineFile, Fingerprint
from mtmc.evaluate.devices import Device
from mtmc.evaluate.gpu_baselines import AUTOTUNED, BASELINES, GpuBaselines, too_late
from mtmc.evaluate.measure import compile_ahead
from mtmc.evaluate.measure.compile_ahead import Prepared
from mtmc.evaluate.measure.device_lock import DeviceLock
from mtmc.evaluate.measure.gpu_workers import GpuWorkers
from mtmc.evaluate.reference.reference import Reference
from mtmc.outcome import Outcome
from mtmc.task import Task, task_from_source
from tests.evaluate.evaluate_sources import PRODUCT

ONCE = f"""
from pathlib import Path
import torch
from mtmc.evaluate.measure import compile_ahead as module
from mtmc.evaluate.measure.compile_ahead import compile_ahead
from mtmc.evaluate.measure.device_lock import DeviceLock
from mtmc.evaluate.reference.reference import Reference
from mtmc.task import task_from_source

task = task_from_source({PRODUCT!r}, "t")
drawn, sizes = [], []
draw, compiled = Reference.draw, torch._TorchCompileInductorWrapper.__call__
Reference.draw = lambda *given: (drawn.append(draw(*given)), drawn[-1])[1]
torch._TorchCompileInductorWrapper.__call__ = lambda *given: (sizes.append(stored(drawn[0])), compiled(*given))[1]
stored = lambda tensors: [each.untyped_storage().nbytes() for each in tensors]
module.LARGE_BYTES = 64
prepared = compile_ahead(task, "default", "cpu", DeviceLock(Path("turns")))
print(*sizes[0], *stored(drawn[0]))
frames = torch._dynamo.utils.counters["frames"]
print(frames["ok"])
reference = Reference(task, task.full, Path.cwd(), 7)
inputs = reference.draw(9)
print(torch.allclose(prepared.with_numbers_of(reference.model)(*inputs), reference.model(*inputs)))
print(frames["ok"])
"""
SCRIPT = """
import os
from pathlib import Path
import torch
import torch._inductor.compile_fx
from mtmc.evaluate.measure import compile_ahead as module
from mtmc.evaluate.measure.device_lock import DeviceLock
from mtmc.evaluate.measure.gpu_workers import GpuWorkers
from mtmc.evaluate.reference.reference import Reference
from mtmc.outcome import Outcome
from mtmc.task import Variant, task_from_source

TEXT = __TEXT__
task, lock = task_from_source(TEXT, "t"), DeviceLock(Path("turns"))
ahead = os.fork() == 0
if not ahead:
    os.wait()
if ahead:
    taken = []
    lock.__class__.__enter__, enter = lambda self: (taken.append(1), enter(self))[1], lock.__class__.__enter__
    module.compile_ahead(task, "default", "cpu", lock)
    assert len(taken) == 2, taken  # for making the model, and for its first run
else:
    torch.set_grad_enabled(False)
    reference = Reference(task, task.full, Path.cwd(), 7)
    torch.compile(reference.model, mode="default")(*reference.draw(9))
print(dict(torch._dynamo.utils.counters["inductor"]))
""".replace("__TEXT__", repr(PRODUCT))


def test_a_lock_that_was_closed_meanwhile_is_given_up_without_complaint(tmp_path: Path) -> None:
    mine, other = DeviceLock(tmp_path / "turns"), DeviceLock(tmp_path / "turns")
    with mine:
        mine.close()
        with other:  # it is free
            pass


def test_a_lock_that_is_closed_is_refused_and_holds_nobody_up(tmp_path: Path) -> None:
    lock, refused = DeviceLock(tmp_path / "turns"), list[str]()
    lock.close()

    def take() -> None:
        with pytest.raises(EvaluatorError, match="closed") as caught, lock:
            pass
        refused.append(str(caught.value))

    take()
    other = threading.Thread(target=take, daemon=True)  # the first one does not keep it
    other.start()
    other.join(60.0)
    assert len(refused) == 2


def test_what_was_compiled_ahead_is_found_by_the_process_that_is_measured(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.getcwd(),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, env=environment, capture_output=True, text=True)
    said = done.stdout.splitlines()
    assert done.returncode == 0 and len(said) == 2, done.stderr
    assert "fxgraph_cache_miss" in said[0]
    assert "fxgraph_cache_hit" in said[1] and "fxgraph_cache_miss" not in said[1]


def test_one_at_a_time_has_its_turn_and_may_take_it_twice(tmp_path: Path) -> None:
    mine, other, said = DeviceLock(tmp_path / "turns"), DeviceLock(tmp_path / "turns"), list[str]()

    def wait() -> None:
        with other:
            said.append("other")

    waiting = threading.Thread(target=wait, daemon=True)
    with mine:
        with mine:
            waiting.start()
        time.sleep(0.05)
        said.append("mine")
    waiting.join(300.0)
    assert said == ["mine", "other"]
    mine.close()
    mine.close()
    other.close()


def test_who_ends_gives_up_its_turn(tmp_path: Path) -> None:
    lock = DeviceLock(tmp_path / "turns")
    held = (
        "import sys; from pathlib import Path; from mtmc.evaluate.measure.device_lock import DeviceLock\n"
        "DeviceLock(Path(sys.argv[1])).__enter__(); print('held', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", held, str(tmp_path / "turns")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        process.kill()
        with lock:
            pass
    lock.close()


@pytest.mark.parametrize("baseline", ["eager", "compile:default"])
def test_only_what_is_compiled_is_compiled_first(baseline: str) -> None:
    from mtmc.evaluate.gpu import GpuEvaluator, GpuSettings

    task, asked, examined = task_from_source(PRODUCT, "t"), list[tuple[object, ...]](), list[tuple[object, ...]]()
    worker = type("Worker", (), {"compile_first": lambda self, *given: asked.append(given) or "process"})()
    evaluator = object.__new__(GpuEvaluator)
    evaluator._settings = GpuSettings()
    evaluator._workers, evaluator._builds = GpuWorkers([worker]), SimpleNamespace(start=lambda: None)
    evaluator._examined = lambda request, metrics, *given: examined.append(given)  # type: ignore[method-assign]
    evaluator._baseline(task, baseline, Path("caches"))
    if baseline == "eager":
        assert (asked, examined) == ([], [("eager",)])
    else:
        assert asked[0][:3] == (task, "default", Path("caches")) and examined == [(baseline, worker, "process")]


@pytest.mark.parametrize(("how", "again"), [("ended", True), ("late", False)])
def test_one_that_was_late_is_not_begun_anew(how: str, again: bool) -> None:
    from mtmc.evaluate.gpu import GpuEvaluator, GpuSettings

    examined = list[tuple[object, ...]]()
    worker = type("Worker", (), {"compile_first": lambda self, *given: how})()
    evaluator = object.__new__(GpuEvaluator)
    evaluator._settings = GpuSettings(compile_s=3.0)
    evaluator._workers, evaluator._builds = GpuWorkers([worker]), SimpleNamespace(start=lambda: None)
    evaluator._examined = lambda request, metrics, *given: examined.append(given)  # type: ignore[method-assign]
    found = evaluator._baseline(task_from_source(PRODUCT, "t"), "compile:default", Path("caches"))
    assert examined == ([("compile:default", worker, None)] if again else [])
    assert again or found == too_late(3.0)


QUICK = ("eager", "torch.compile")


def baselines(path: Path, measure: Callable[[Task, str, Path], Outcome], names: Sequence[str]) -> GpuBaselines:
    return GpuBaselines(names, str(path / "baselines.json"), Device.host(), measure)


def kept(path: Path, task: Task) -> Mapping[str, Outcome]:
    return BaselineFile.of(str(path / "baselines.json")).find(Fingerprint.of(task, Device.host()))


def test_baselines_are_measured_at_the_same_time(tmp_path: Path) -> None:
    all_at_work, task = threading.Barrier(2, timeout=60.0), task_from_source(PRODUCT, "t")

    def made(task: Task, baseline: str, caches: Path) -> Outcome:
        all_at_work.wait()
        status = "build_error" if "compile" in baseline else "ok"
        return Outcome(status, runtime_ms=1.0 if status == "ok" else None)

    found = baselines(tmp_path, made, QUICK).quick(task)
    assert list(found) == list(QUICK) and [each.ok for each in found.values()] == [True, False]
    assert kept(tmp_path, task).keys() == {"eager"}, "a failure may be one of the moment"


def test_nobody_waits_for_max_autotune(tmp_path: Path) -> None:
    asked, task = list[str](), task_from_source(PRODUCT, "t")

    def made(task: Task, baseline: str, caches: Path) -> Outcome:
        asked.append(baseline)
        return Outcome("ok", runtime_ms=1.0)

    names = [*QUICK, AUTOTUNED]
    of_task = baselines(tmp_path, made, names)
    found = of_task.quick(task)
    assert list(found) == names and [each.status for each in found.values()] == ["ok", "ok", "not_run"]
    assert asked.count(BASELINES[AUTOTUNED]) == 0 and AUTOTUNED not in kept(tmp_path, task)
    assert of_task.slow(task) == {AUTOTUNED: Outcome("ok", runtime_ms=1.0)}
    assert all(each.ok for each in baselines(tmp_path, made, names).quick(task).values()), (
        "what is kept is known at once"
    )
    assert sorted(asked) == sorted(BASELINES[name] for name in names), "each once"
    assert baselines(tmp_path, made, QUICK).slow(task) == {}, "one that the settings leave out is never asked for"


def test_a_mode_that_is_late_goes_on_where_it_stood(tmp_path: Path) -> None:
    """What torch.compile has found out is kept until its time is known, or it fails."""
    task, seen = task_from_source(PRODUCT, "t"), list[list[str]]()

    def late(task: Task, baseline: str, caches: Path) -> Outcome:
        caches.mkdir(parents=True, exist_ok=True)
        (caches / "found").touch()
        return too_late(7.0)

    def ended(task: Task, baseline: str, caches: Path) -> Outcome:
        seen.append(os.listdir(caches))
        return Outcome("build_error")

    found = baselines(tmp_path, late, [AUTOTUNED]).slow(task)[AUTOTUNED]
    assert found.status == "timeout" and "after 7 s: give more evaluator.compile_s" in found.verdict
    assert not kept(tmp_path, task)
    baselines(tmp_path, ended, [AUTOTUNED]).slow(task)
    assert seen == [["found"]] and not list((tmp_path / "baselines.compiling").iterdir())


def test_quick_ones_leave_what_max_autotune_has_found_out(tmp_path: Path) -> None:
    task = task_from_source(PRODUCT, "t")

    def made(task: Task, baseline: str, caches: Path) -> Outcome:
        caches.mkdir(parents=True, exist_ok=True)
        return Outcome("ok", runtime_ms=1.0)

    of_task = baselines(tmp_path, made, ["torch.compile", AUTOTUNED])
    of_task.quick(task)
    assert len(list((tmp_path / "baselines.compiling").iterdir())) == 1
    of_task.slow(task)
    assert not list((tmp_path / "baselines.compiling").iterdir())


def test_what_a_cut_off_compiler_has_found_out_waits_for_the_next(tmp_path: Path) -> None:
    task, seen = task_from_source(PRODUCT, "t"), list[list[str]]()

    def cut_off(task: Task, baseline: str, caches: Path) -> Outcome:
        caches.mkdir(parents=True)
        (caches / "found").touch()
        raise EvaluatorError("closed")

    def ended(task: Task, baseline: str, caches: Path) -> Outcome:
        seen.append(os.listdir(caches))
        return Outcome("ok", runtime_ms=1.0)

    with pytest.raises(EvaluatorError, match="closed"):
        baselines(tmp_path, cut_off, ["torch.compile"]).quick(task)
    assert baselines(tmp_path, ended, ["torch.compile"]).quick(task)["torch.compile"].ok
    assert seen == [["found"]] and not list((tmp_path / "baselines.compiling").iterdir())


def test_inductor_keeps_what_it_finds_where_it_is_told(tmp_path: Path) -> None:
    text = (
        "import sys; from pathlib import Path\n"
        "from mtmc.evaluate.measure.candidate_process import _compiled\n"
        "from mtmc.task import task_from_source\n"
        f"task = task_from_source({PRODUCT!r}, 't')\n"
        "assert _compiled(task, 'default', 'host', Path('turns'), Path('done'), str(Path('kept').absolute()))"
    )
    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "other")}
    done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and (tmp_path / "done").exists(), done.stderr
    assert (tmp_path / "kept" / "fxgraph").exists() and not (tmp_path / "other" / "fxgraph").exists()


def test_configurations_of_one_kernel_are_timed_in_one_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.runtime.benchmarking import benchmarker
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    lock, taken = DeviceLock(tmp_path / "turns"), list[int]()
    take = lock._take
    monkeypatch.setattr(lock, "_take", lambda: (taken.append(1), take()))
    monkeypatch.setattr(benchmarker, "benchmark_gpu", float)
    monkeypatch.setattr(
        CachingAutotuner,
        "benchmark_all_configs",
        lambda self: [benchmarker.benchmark_gpu(each) for each in self.launchers],
    )
    before = benchmarker.benchmark_gpu, CachingAutotuner.benchmark_all_configs
    with compile_ahead._taking_turns(lock):
        assert CachingAutotuner.benchmark_all_configs(SimpleNamespace(launchers=[3, 1, 2])) == [3.0, 1.0, 2.0]
        assert len(taken) == 1
        assert benchmarker.benchmark_gpu(4) == 4.0
        assert len(taken) == 2
    assert (benchmarker.benchmark_gpu, CachingAutotuner.benchmark_all_configs) == before
    lock.close()


def test_a_compiled_model_takes_the_numbers_of_another_one(tmp_path: Path) -> None:
    task = task_from_source(PRODUCT, "t")
    mine, other = (Reference(task, task.full, tmp_path, seed).model for seed in (1, 2))
    prepared = Prepared("default", mine, lambda x: mine(x), "cpu")
    with torch.no_grad():
        compiled = prepared.with_numbers_of(other)
        assert compiled is not None
        x = torch.randn(4, 8)
        assert torch.equal(compiled(x), other(x)) and mine.weight is not other.weight
        for name, value in (
            ("weight", torch.nn.Parameter(torch.randn(8, 6))),
            ("scale", 2.0),
            ("table", torch.ones(3)),
        ):
            different = Reference(task, task.full, tmp_path, 3).model
            setattr(different, name, value)
            assert prepared.with_numbers_of(different) is None, name


def test_a_baseline_is_measured_where_it_was_compiled(tmp_path: Path) -> None:
    """In one process: the reference is compiled once, with the seed of the preparation, and called with other weights."""
    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    done = subprocess.run([sys.executable, "-c", ONCE], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    meanwhile, then, before, right, after = done.stdout.split()
    assert (meanwhile, then) == ("0", str(4 * 8 * 4))  # the inputs have no memory while it is compiled
    assert right == "True" and before == after  # not compiled again

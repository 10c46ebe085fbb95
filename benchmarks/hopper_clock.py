"""hopper_clock: runs versions and libraries on the GPU, right first and then timed in turns. Used by `hopper.py`.

It lives in a process of its own, since a kernel that hangs or breaks the context would end the run: the parent kills it,
leaves that candidate out and goes on in another one.
"""

from __future__ import annotations

import contextlib
import functools
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.hopper_build import Case
from mtmc.evaluate.compiling.cold_cache import ColdCache

ROUND_MS = 6.0
"""Time of one candidate in one round."""
COMPILED = {"compile": None, "max-autotune": "max-autotune-no-cudagraphs"}
"""Modes of torch.compile; each call becomes a CUDA graph here anyway."""
LOOKS, KEPT = 2, 6
"""Rounds of all candidates; then so many of them, and the one a search starts with, are timed beside the libraries."""


def serve(pipe: Any) -> None:
    """Take ("case", case, files by label, rounds, seed, compiled) and answer with ("trying", label), ("row", data) and
    ("done",) until None comes."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    cold = ColdCache()
    pipe.send(("ready", torch.cuda.get_device_name(), torch.__version__))
    while (given := pipe.recv()) is not None:
        with torch.no_grad():
            for answer in _measured(given, cold):
                pipe.send(answer)
        pipe.send(("done",))
        torch.cuda.empty_cache()


def _measured(given: Any, cold: ColdCache) -> Iterator[tuple[Any, ...]]:
    """All answers for one case."""
    import torch

    _, case, files, rounds, seed, compiled = given
    torch.manual_seed(seed)
    module = _module(case.text, f"reference_{case.name}")
    inputs = [each.cuda() if isinstance(each, torch.Tensor) else each for each in module.get_inputs()]
    model = module.Model(*module.get_init_inputs()).cuda()
    expected = _exact(model, inputs)
    ways: dict[str, Callable[[], Any]] = dict(_library(case, module, model, inputs, compiled))
    running: dict[str, Callable[[], None]] = {}
    for label in (*ways, *files):
        yield ("trying", label)
        try:
            call = ways[label] if label in ways else _version(files[label], case, label, model, inputs)
            error = _difference(call(), expected)
            running[label] = _captured(call)
            yield ("row", {"case": case.name, "label": label, "error": error})
        except Exception as failure:
            yield (
                "row",
                {"case": case.name, "label": label, "failure": f"{type(failure).__name__}: {str(failure)[:300]}"},
            )
    yield ("trying", "")
    times = _rounds(running, set(ways), cold, rounds, seed)
    for label, found in times.items():
        yield ("row", {"case": case.name, "label": label, "ms": statistics.median(found), "rounds": found})


def _exact(model: Any, inputs: list[Any]) -> Any:
    """What the reference gives for the same numbers in fp32."""
    import copy

    import torch

    wide = [x.float() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs]
    return copy.deepcopy(model).float()(*wide)


def _difference(found: Any, expected: Any) -> float:
    """Norm-wise."""
    return float((found.float() - expected.float()).norm() / expected.float().norm())


def _module(text: str, name: str) -> Any:
    import types

    module = sys.modules[name] = types.ModuleType(name)  # torch.compile looks for it there
    exec(compile(text, name, "exec"), module.__dict__)  # of our own cases
    return module


def _version(file: str, case: Case, label: str, model: Any, inputs: list[Any]) -> Callable[[], Any]:
    from mtmc.evaluate.loading.modules import load_module

    new = load_module(Path(file).read_text(encoding="utf-8"), Path(file)).ModelNew(
        *_module(case.text, "arguments").get_init_inputs()
    )
    new.cuda().load_state_dict(model.state_dict())
    return lambda: new(*inputs)


def _library(
    case: Case, module: Any, model: Any, inputs: list[Any], compiled: Sequence[str]
) -> Iterator[tuple[str, Any]]:
    """What the candidates are compared with. compiled: names in `COMPILED`."""
    import torch

    names = dict(zip(module.Model.forward.__code__.co_varnames[1 : len(inputs) + 1], inputs, strict=True))
    if case.wide:
        names["wide"] = eval(case.wide, dict(module.__dict__))
    for name in case.library:
        if name == "eager":
            yield name, lambda: model(*inputs)
        elif name in ("cudnn", "flash"):
            yield name, functools.partial(_by, name, lambda: eval(case.fused, {**module.__dict__, **names}))
        elif name == "flash3" and (flash3 := _flash3()):
            yield name, functools.partial(flash3, case.fused, *(names[each] for each in "qkv"))
        elif name == "product" and case.fused:
            yield name, lambda: eval(case.fused, {**module.__dict__, **names})
    names["by_cudnn"] = functools.partial(_by, "cudnn")
    for name, text in case.also.items():
        yield name, lambda text=text: eval(text, {**module.__dict__, **names})
    for name in compiled:
        whole = torch.compile(model, mode=COMPILED[name])
        yield name, lambda whole=whole: whole(*inputs)


def _by(library: str, work: Callable[[], Any]) -> Any:
    """Attention of torch's function by "cudnn" or "flash" alone, which raises RuntimeError where that cannot do it."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION if library == "cudnn" else SDPBackend.FLASH_ATTENTION):
        return work()


def _flash3() -> Callable[..., Any] | None:
    """FlashAttention 3 (`pip install fa3-fwd`) of operands as torch's function takes them; None where it is missing."""
    try:
        from fa3_fwd_interface import flash_attn_func
    except ImportError:
        return None

    def attention(work: str, q: Any, k: Any, v: Any) -> Any:
        window = (1023, 0) if "seen" in work else (-1, -1)
        given = (each.transpose(1, 2) for each in (q, k, v))
        found = flash_attn_func(*given, causal="is_causal=True" in work, window_size=window, num_splits=0)
        return (found[0] if isinstance(found, tuple) else found).transpose(1, 2)

    return attention


def _captured(call: Callable[[], Any]) -> Callable[[], None]:
    """One call as a CUDA graph, which leaves the host out of the time; the call itself where it cannot be one."""
    import torch

    for _ in range(2):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    with contextlib.suppress(RuntimeError):
        with torch.cuda.stream(stream):
            call()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            kept = call()
        graph.kept = kept
        graph.replay()
        torch.cuda.synchronize()
        return graph.replay
    torch.cuda.synchronize()
    return call


def _rounds(
    running: dict[str, Callable[[], None]], library: set[str], cold: ColdCache, rounds: int, seed: int
) -> dict[str, list[float]]:
    """Times in milliseconds, a median a round: the best candidates and the libraries by turns, in another order each time.

    Which are the best is told by `LOOKS` rounds of all, which count for nothing else: a GPU that has just begun is up to a
    tenth faster than one at work, and what was timed then alone would win over what was timed throughout.
    """
    counts = dict.fromkeys(running, 3)
    draw = random.Random(seed)

    def turn(labels: list[str]) -> dict[str, float]:
        found = dict[str, float]()
        for label in draw.sample(labels, len(labels)):
            times = _timed(running[label], counts[label], cold)
            counts[label] = max(3, min(40, round(ROUND_MS / max(statistics.median(times), 1e-3))))
            found[label] = statistics.median(times)
        return found

    looks = [turn([*running]) for _ in range(LOOKS)]
    ours = sorted((label for label in running if label not in library), key=lambda label: min(x[label] for x in looks))
    kept = [label for label in running if label in library or label in ours[:KEPT] or label == "start"]
    timed = [turn(kept) for _ in range(rounds)]
    return {label: [each[label] for each in timed] for label in kept}


def _timed(call: Callable[[], None], count: int, cold: ColdCache) -> list[float]:
    import torch

    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
    for start, end in events:
        cold.empty()
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in events]

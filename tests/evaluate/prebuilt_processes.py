"""The two processes of the tests of prebuilt kernels: one builds into a cache, one may only read it.

There is no GPU in them: the second has Triton's own CUDA driver, launcher and keys, over a CUDA library whose functions
succeed and do nothing, and tensors in the CPU's memory.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
import traceback
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

LIBCUDA = """
typedef unsigned long long u64;
static int last = 0, count = 0;
#define NOTHING(name) int name() { return 0; }
NOTHING(cuCtxGetLimit) NOTHING(cuCtxSetCurrent) NOTHING(cuCtxSetLimit) NOTHING(cuCtxGetDevice) NOTHING(cuDeviceGet)
NOTHING(cuFuncSetAttribute) NOTHING(cuFuncSetCacheConfig) NOTHING(cuGetErrorString) NOTHING(cuModuleUnload)
NOTHING(cuDriverGetVersion) NOTHING(cuStreamIsCapturing) NOTHING(cuTensorMapEncodeTiled)
NOTHING(cuOccupancyMaxActiveClusters)
int cuInit(unsigned flags) { return 100; }
int cuCtxGetCurrent(void **context) { *context = (void *)1; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)1; return 0; }
int cuModuleLoadData(void **module, const void *image) { *module = (void *)1; return 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) { *function = (void *)1; return 0; }
int cuFuncGetAttribute(int *value, int attribute, void *function) { *value = attribute ? 32 : 1024; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 97 ? 232448 : attribute == 16 ? 132 : 1;
  return 0;
}
int cuPointerGetAttribute(u64 *value, int attribute, u64 pointer) { *value = pointer; return 0; }
int cuLaunchKernelEx(const unsigned *config, void *function, void **arguments, void **extra) {
  last = config[3];
  count++;
  return 0;
}
int seen_threads(void) { return last; }
int seen_launches(void) { return count; }
"""
"""A CUDA driver that launches nothing, and tells how often it was asked to and with how many threads a block."""

FORBIDDEN = ("subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.system")
WRITING = ("os.mkdir", "os.rename", "os.remove", "tempfile.mkdtemp", "tempfile.mkstemp", "shutil.rmtree")


def build_all(jobs: dict[str, tuple[Any, str]]) -> dict[str, Any]:
    """What the build says of each (task, source), all their shapes into one cache; each in a process of its own."""
    from mtmc.evaluate.compiling.build import build, warm

    warm("sm_90", 132, for_gpu=True)
    answers = {}
    for name, (task, source) in jobs.items():
        answer = Path(tempfile.mkdtemp()) / "answer.json"
        if os.fork() == 0:
            try:
                os.chdir(answer.parent)
                answer.write_text(json.dumps(asdict(build(task, source, "sm_90", task.variants, for_gpu=True))))
            except BaseException:
                traceback.print_exc()
            os._exit(0)
        os.wait()
        answers[name] = json.loads(answer.read_text())
    return answers


def launch_all(jobs: dict[str, tuple[Any, str]], library: str) -> dict[str, Any]:
    """For each (task, source) what two calls launched at each set of shapes, or the exception that came of it."""
    from mtmc.evaluate.compiling.autotune import quick_autotune
    from mtmc.evaluate.compiling.prebuilt import install, prime

    fingerprint = prime("sm_90")
    _pretend_device()
    folder = Path(tempfile.mkdtemp())
    os.chdir(folder)
    for name, (task, source) in jobs.items():
        _write(folder, name, task, source)
    driver = ctypes.CDLL(library)
    _pretend_clock(driver)
    quick_autotune()
    refused = install()
    _forbid_processes_and_writing()
    answers: dict[str, Any] = {"fingerprint": fingerprint, "refused": refused}
    for name, (task, _) in jobs.items():
        answers[name] = {
            variant.label: _forward(folder, name, task, variant, driver)
            for variant in (task.small, *task.held_out, task.full)
        }
    return answers


def _write(folder: Path, name: str, task: Any, source: str) -> None:
    from mtmc.evaluate.loading.modules import candidate_text

    for variant in task.variants:
        path = folder / f"of_{name}_{variant.label}.py"
        path.write_text("# another file, another place\n" * 3 + candidate_text(source, variant.constants))


def _forward(folder: Path, name: str, task: Any, variant: Any, driver: Any) -> dict[str, Any]:
    import importlib

    import torch

    from mtmc.evaluate.compiling.prebuilt import know

    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    module = importlib.import_module(f"of_{name}_{variant.label}")
    know(module)
    sizes = {"rows": 256, "cols": 4096, **dict(variant.constants)}
    model = module.ModelNew(sizes["cols"])
    x = _aligned(torch.randn(sizes["rows"], sizes["cols"]))
    before = driver.seen_launches()
    try:
        with torch.no_grad():
            model(x)
            model(x)
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)}
    tuners = [value for value in vars(module).values() if hasattr(value, "best_config")]
    return {
        "launches": driver.seen_launches() - before,
        "threads": driver.seen_threads(),
        "best": [str(tuner.best_config) for tuner in tuners],
        "hashes": sorted(_hashes(module)),
    }


def _hashes(module: Any) -> set[str]:
    """Of all kernels that the module's jitted functions have loaded."""
    from mtmc.evaluate.compiling.prebuilt import _jitted

    found = set()
    for value in vars(module).values():
        for caches in getattr(_jitted(value), "device_caches", {}).values():
            found |= {kernel.hash for kernel in caches[0].values()}
    return found


def _aligned(values: Any, to: int = 512) -> Any:
    """The same values at an address that is divisible by `to`, as an arena would have them."""
    import torch

    memory = torch.empty(values.numel() * values.element_size() + to, dtype=torch.uint8)
    start = -memory.data_ptr() % to
    place = memory[start : start + values.numel() * values.element_size()].view(values.dtype).view(values.shape)
    return place.copy_(values)


def _pretend_device() -> None:
    """Triton's own CUDA driver, told that there is an H100."""
    import torch
    import triton
    from triton.backends.nvidia.driver import CudaDriver

    torch.cuda.get_device_capability = lambda device=None: (9, 0)
    torch.cuda.current_device = lambda: 0
    driver = CudaDriver()
    driver.get_current_stream = lambda device: 0
    triton.runtime.driver.set_active(driver)


def _pretend_clock(library: Any) -> None:
    """Events that take a kernel with more threads for a slower one, and no cache to empty."""
    import torch

    from mtmc.evaluate.compiling import autotune

    class Event:
        def __init__(self, enable_timing: bool = False) -> None:
            assert enable_timing

        def record(self) -> None:
            self.threads = library.seen_threads()

        def elapsed_time(self, end: Any) -> float:
            return float(end.threads) / 1024

    torch.cuda.Event = Event
    torch.cuda.synchronize = lambda device=None: None
    autotune._cold = lambda: SimpleNamespace(empty=lambda: None)


def _forbid_processes_and_writing() -> None:
    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in FORBIDDEN or event in WRITING:
            raise PermissionError(f"{event}{arguments!r} in a process that may only read")
        if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
            raise PermissionError(f"writes {arguments[0]}")

    sys.addaudithook(hook)


if __name__ == "__main__":
    import pickle

    request = pickle.loads(Path(sys.argv[1]).read_bytes())
    with open(sys.argv[2], "w", encoding="utf-8") as answer:  # before the process forbids itself to write
        json.dump(globals()[request["function"]](**request["arguments"]), answer)

"""Catching kernel launches: what a forward would run on a GPU, recorded and compiled but never run.

`Trace.install` replaces Triton's way of launching in the present process for good: it is meant for build workers, which
live for one candidate. Tensors are fake; their addresses are taken to be aligned as their storage offset says.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mtmc.cuda import RawKernel
from mtmc.evaluate.audit.cuda_text import CudaText
from mtmc.evaluate.compiling import stand_in
from mtmc.evaluate.compiling.autotune import pin_autotuners, try_all
from mtmc.evaluate.compiling.compiled_kernel import Forbidden, Kernel, check_clocks, kernel_of
from mtmc.evaluate.compiling.compiler import Compiler, Pending, tunable_failures
from mtmc.evaluate.compiling.cuda_kernels import CudaBinary, launched
from mtmc.evaluate.compiling.launch_limits import check_devices, check_grid, check_resources
from mtmc.evaluate.compiling.launched import Launch, described
from mtmc.evaluate.compiling.prebuilt import know
from mtmc.evaluate.compiling.target import Target
from mtmc.evaluate.compiling.torch_calls import TorchCall, torch_calls
from mtmc.evaluate.loading.jitted import described as function_described
from mtmc.evaluate.loading.jitted import digest

_BASE_ADDRESS = 1 << 40
"""Pretended start of every storage: non-zero, and aligned to all that a compiler cares about."""


@dataclass(frozen=True)
class _Asked:
    """One kernel that was asked for. launch: what is recorded, but for `compiled`; None where it is only compiled."""

    compiled: Any
    line: tuple[str, int | None]
    launch: Launch | None


@dataclass
class _Choice:
    """Kernels of which one will be launched: a plain launch has one, an autotuned one has one for each configuration.

    label: of the shapes. recorded: whether it goes into `Trace.launches`. tuned: name of the autotuned kernel.
    """

    label: str
    recorded: bool
    tuned: str = ""
    kernels: list[_Asked] = field(default_factory=list)


class Trace:
    """The launches of one forward.

    launches: in launch order. kernels: each distinct compiled kernel. calls: torch ops of that forward,
        of a build for a GPU.
    autotuned: name of each autotuned kernel -> index of the configuration taken among the pruned ones: the first that
        compiles and fits.
    launching: name and first line of the kernel being launched now, or last.
    failed: error and `launching` of the last launch of each kernel that failed in it: a forward that swallowed the error
        has not told.
    gluon: names of the kernels in Gluon that were asked for, at any shapes.
    label: of the shapes that the forward now has. Launches at others than the full ones are compiled, not recorded.

    With a compiler, kernels compile in its threads and launches are recorded by `finish`; every configuration of an
    autotuned kernel is compiled. Without, each is compiled where it is launched.
    device: where a launch's tensors must be, "cpu" or "cuda:0". cuda: the version's kernels in CUDA C++.
    """

    def __init__(
        self,
        target: Target,
        compiler: Compiler | None = None,
        device: str = "cpu",
        cuda: Mapping[CudaText, CudaBinary] | None = None,
    ) -> None:
        self.launches: list[Launch] = []
        self.calls: list[TorchCall] = []
        self.kernels: list[Kernel] = []
        self.autotuned: dict[str, int] = {}
        self.launching: tuple[str, int | None] = ("", None)
        self.failed: dict[str, tuple[Exception, tuple[str, int | None]]] = {}
        self.gluon: set[str] = set()
        self.label = "full"
        self._forbidden: Forbidden | None = None
        self._target = target
        self._cuda = cuda or {}
        self._compiler = compiler
        self._device = device.partition(":")[0]
        self._choices: list[_Choice] = []
        self._choice: _Choice | None = None  # the one that is being added to
        self._recording = True
        self._lines: dict[str, int] = {}  # text of a jitted function -> line of its `def` in the candidate
        self._indices: dict[str, int] = {}  # hash of a compiled kernel -> index into kernels

    @property
    def for_gpu(self) -> bool:
        """Whether kernels are compiled for a process that launches them."""
        return self._compiler is not None

    @property
    def _recorded(self) -> bool:
        return self._recording and self.label == "full"

    @contextlib.contextmanager
    def unrecorded(self) -> Iterator[None]:
        """While open, kernels are compiled and launches not recorded."""
        self._recording = False
        try:
            yield
        finally:
            self._recording = True

    def torch_calls(self) -> Any:
        """A context manager: while it is open, torch ops of a forward at the full shapes are noted."""
        return torch_calls(self.calls) if self._recorded else contextlib.nullcontext()

    def install(self) -> None:
        """Catch all launches of this process from now on."""
        from torch._subclasses.fake_tensor import FakeTensor
        from triton.runtime.jit import JITFunction

        original = JITFunction.run
        stand_in.on_capture[:] = [self._rehearsed] if self.for_gpu else []

        def run(jitted: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            self.launching = (jitted.__name__, self._lines.get(jitted.src))
            if jitted.is_gluon():
                self.gluon.add(jitted.__name__)
            try:
                compiled = original(jitted, *args, grid=grid, warmup=True, **kwargs)
                launch = None if warmup else self._launch(jitted, grid, args, kwargs)
                self._ask(_Asked(compiled, self.launching, launch))
            except Exception as error:
                self.failed[jitted.__name__] = (error, self.launching)
                raise
            self.failed.pop(jitted.__name__, None)  # a tuner that went on to a configuration that fits
            return compiled

        def data_ptr(tensor: Any) -> int:
            return _BASE_ADDRESS + int(tensor.storage_offset()) * int(tensor.element_size())

        JITFunction.run = run
        self._number_lines()
        if self._cuda:
            self._install_cuda()
        FakeTensor.data_ptr = data_ptr  # type: ignore[method-assign,assignment]
        if self._compiler is None:
            pin_autotuners(self.autotuned, skip=tunable_failures())
        else:
            self._compiler.install()
            try_all(self._one_of)

    def _number_lines(self) -> None:
        """Let the compiler count lines as the file does: in 3.6 it asks for a function's first line where it compiles it,
        later releases have noted it before `know` changes it."""
        from triton.compiler import code_generator

        original = getattr(code_generator, "get_jit_fn_file_line", None)
        if original is None:
            return

        def located(function: Any) -> tuple[str, int]:
            file, line = original(function)
            return file, self._lines.get(getattr(function, "src", ""), line)

        code_generator.get_jit_fn_file_line = located

    def _install_cuda(self) -> None:
        """Catch the launches of kernels in CUDA C++, too."""
        binaries = {text.key: binary for text, binary in self._cuda.items()}
        lines = {text.key: text.line for text in self._cuda}

        def call(kernel: RawKernel, grid: Any, block: Any, args: Any, shared_mem: int = 0) -> None:
            key = (kernel.raw_code, kernel.raw_name, kernel.raw_options)
            self.launching = (kernel.raw_name, lines.get(key))
            try:
                launch, compiled = launched(kernel, grid, block, args, shared_mem, binaries, self._target)
                values = dict(zip((name for _, _, name in kernel.raw_declared), args, strict=True))
                check_devices(values, kernel.raw_name, self._device)
                check_grid([*launch.grid])
                self._ask(_Asked(compiled, self.launching, launch))
            except Exception as error:
                self.failed[kernel.raw_name] = (error, self.launching)
                raise
            self.failed.pop(kernel.raw_name, None)

        RawKernel.__call__ = call  # type: ignore[assignment,method-assign]

    def _rehearsed(self) -> None:
        """What was launched before a capture is launched by the graph, too: it is not recorded twice."""
        if not self._recorded:
            return
        self.launches.clear()
        self.calls.clear()
        for choice in self._choices:
            choice.recorded = False

    def _ask(self, asked: _Asked) -> None:
        if self._choice is not None:
            self._choice.kernels.append(asked)
            return
        self._choices.append(_Choice(self.label, self._recorded, kernels=[asked]))
        if self._compiler is None:
            self.finish()

    def finish(self) -> None:
        """Wait for all kernels that were asked for, and record the launches of the full shapes.

        Raises: what the first launch of which no kernel compiles and fits raised; `launching` and `label` are its own.
            Forbidden for a kernel that no version may have, whether or not a forward has swallowed that.
        """
        label, choices, self._choices = self.label, self._choices, []
        for choice in choices:
            self.label = choice.label
            self._settle(choice)
        self.label = label
        if self._forbidden is not None:
            raise self._forbidden

    def know(self, module: types.ModuleType) -> None:
        """Note where the jitted functions of a candidate stand, for diagnoses, and make their keys alike wherever that is
        (`mtmc.evaluate.compiling.prebuilt.know`)."""
        self._lines.update(know(module))

    def locate(self, error: Any) -> tuple[int | None, str]:
        """Line in the candidate and message of a Triton compilation error: the innermost one that has both."""
        line: int | None = self.launching[1]
        message = ""
        link = error
        while link is not None:
            start = self._lines.get(getattr(link, "src", None) or "")
            within = getattr(getattr(link, "node", None), "lineno", None)
            if start is not None and within is not None:
                line = start + within - 1
            said = link.error_message if hasattr(link, "error_message") else f"{type(link).__name__}: {link}"
            message = said or message
            link = link.__cause__
        return line, message or str(error)

    @contextlib.contextmanager
    def _one_of(self, tuned: str) -> Iterator[None]:
        """While open, launches are of configurations of one autotuned kernel, of which one will be taken."""
        if self._choice is not None:  # a tuner of a tuner: all of it is one choice
            yield
            return
        self._choice = _Choice(self.label, self._recorded, tuned)
        try:
            yield
        finally:
            self._choices.append(self._choice)
            self._choice = None

    def _settle(self, choice: _Choice) -> None:
        """Wait for the kernels of one launch; record it with the first that fits."""
        refused: Exception | None = None
        settled = False
        for index, asked in enumerate(choice.kernels):
            self.launching = asked.line
            try:
                compiled = asked.compiled.result() if isinstance(asked.compiled, Pending) else asked.compiled
                check_resources(compiled.metadata, self._target)
                check_clocks(compiled.metadata_group, *asked.line)
            except tunable_failures() as error:
                refused = refused or error
                continue
            except Forbidden as error:
                self._forbidden = error
                raise
            if not settled and choice.recorded:
                self._record(asked, compiled)
                if choice.tuned:
                    self.autotuned.setdefault(choice.tuned, index)
            settled = True
        if refused is not None and not settled:
            raise refused

    def _record(self, asked: _Asked, compiled: Any) -> None:
        if asked.launch is not None:
            if compiled.hash not in self._indices:
                self._indices[compiled.hash] = len(self.kernels)
                self.kernels.append(kernel_of(compiled, asked.line[1], self._target.warp_size))
            self.launches.append(replace(asked.launch, compiled=self._indices[compiled.hash]))

    def _launch(self, jitted: Any, grid: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Launch:
        names = jitted.signature.parameters
        bound = jitted.signature.bind(*args, **{k: v for k, v in kwargs.items() if k in names})
        bound.apply_defaults()
        values = dict(bound.arguments)
        check_devices(values, jitted.__name__, self._device)
        size = [int(n) for n in (grid(values) if callable(grid) else grid)]
        check_grid(size)
        x, y, z = size + [1] * (3 - len(size))
        constexprs = {param.name for param in jitted.params if param.is_constexpr}
        return Launch(
            jitted.__name__,
            0,
            (x, y, z),
            {n: described(v) for n, v in values.items() if n not in constexprs},
            {n: described(v) for n, v in values.items() if n in constexprs},
            digest(function_described(jitted)),
        )

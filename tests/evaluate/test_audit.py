"""The audit refuses by reading alone: what it must refuse, and honest texts that it must not."""

from __future__ import annotations

import pytest
from evaluate_sources import HONEST, changed, line_of

from mtmc.evaluate.audit.audit import audit
from mtmc.outcome import Outcome

HEAD = "import torch\nimport triton\nimport numpy as np\nimport torch.nn.functional as F\n"
TAIL = "\nclass ModelNew(torch.nn.Module):\n    pass\n"


def test_honest_version_passes() -> None:
    assert audit(HONEST) is None


def test_syntax_error_is_a_build_error_with_its_line() -> None:
    source = changed("row = tl.program_id(0)", "row = = tl.program_id(0)")
    outcome = audit(source)
    assert outcome is not None and outcome.status == "build_error"
    assert outcome.diagnosis is not None and outcome.diagnosis.kind == "SyntaxError"
    assert outcome.diagnosis.line == line_of("row = = tl", source)
    assert "> " in outcome.diagnosis.excerpt and "row = = tl" in outcome.diagnosis.excerpt


def test_missing_class_is_a_build_error() -> None:
    outcome = audit(changed("class ModelNew(nn.Module)", "class Model(nn.Module)"))
    assert outcome is not None and outcome.status == "build_error"
    assert outcome.diagnosis is not None and outcome.diagnosis.kind == "MissingModelNew"


def test_null_byte_and_endless_nesting_are_build_errors() -> None:
    for source in (HEAD + "x = '\0'" + TAIL, "x = " + "(" * 5000 + ")" * 5000):
        outcome = audit(source)
        assert outcome is not None and outcome.status == "build_error"


def test_oversized_file_is_rejected() -> None:
    outcome = audit(HONEST + "#" * (1 << 20))
    assert outcome is not None and outcome.status == "rejected"


@pytest.mark.parametrize(
    "text",
    [
        "import os",
        "import subprocess as math_tools",
        "from os import environ",
        "def forward():\n    import socket",
        "import ctypes, math",
        "import gc",
        "import threading",
        "import sys",
        "import requests",
        "import scipy",
        "from . import helper",
        "from torch.utils.cpp_extension import load_inline",
        "import torch.utils.cpp_extension",
        "import torch.multiprocessing as mp",
        "from torch import hub",
        "from triton.compiler import compile as build",
        "torch.os.environ.get('KEY')",
        "x = torch.utils.cpp_extension.load_inline",
        "torch.load('weights.pt')",
        "np.memmap('file')",
        "np.ctypeslib.as_array",
        "import numpy.ctypeslib",
        "torch.ones(3).numpy().tofile('out')",
        "exec('x = 1')",
        "eval('1')",
        "run = eval",
        "__import__('os')",
        "open('/etc/passwd')",
        "compile('1', '', 'eval')",
        "globals()['x'] = 1",
        "().__class__.__subclasses__()",
        "(lambda: 0).__globals__",
        "getattr(torch, 'os')",
        "getattr(f, '__globals__')",
        "torch.cuda.synchronize = lambda: None",
        "torch.backends.cuda.matmul.allow_tf32 = True",
        "triton.testing.do_bench = None",
        "setattr(torch.cuda, 'synchronize', None)",
        "del torch.empty",
        "F.softmax = None",
        "torch.compile(None)",
        # modules reached through others
        "import collections\ncollections._sys.modules",
        "import enum\nenum.bltns.open",
        "from collections import _sys",
        "import dataclasses\ndataclasses.types.CodeType",
        "from typing import contextlib",
        "torch.cuda.tunable.mp.Process",
        "torch._guards.unittest.mock",
        "triton.testing.statistics.random._os",
        "import triton.language.extra as extra\nextra.pkgutil.zipimport",
        "torch.ones(1).numpy().ctypes._ctypes",
        "print.__self__.open('x')",
        "x = [torch.cuda.graphs][0].gc",
        "torch._C._cuda_init()",
        "x = torch._C",
        "getattr(torch._C, '_cuda_' + 'init')",
        "getattr(torch._C, '_cuda_init')",
        "[torch._C][0]._cuda_init()",
        "c = torch._C\nc._cuda_init()",
        "from torch import _C\n_C._cuda_init()",
        "from torch import _C\nx = [_C]",
        "from torch import _C\ngetattr(_C, '_cuda_' + 'init')",
        "from torch._C import _cuda_clearCublasWorkspaces as c\nc.__self__",
        "import torch._C as c\nc._cuda_init()",
        "getattr(triton.tools, 'ma' + 'th')",
        "torch._C._cuda_clearCublasWorkspaces.__self__",
        "torch._C._cuda_clearCublasWorkspaces = None",
        "hasattr(torch._C, '_cuda_init')",
        "hasattr(torch._C, *names)",
        "(c := torch._C)._cuda_init()",
        "match torch._C:\n    case c:\n        c._cuda_init()",
        "def f(c=torch._C): return c",
        "@torch._C._jit_script\ndef f(): pass",
        "f'{torch._C._cuda_init()}'",
        "def f(a: torch._C._cuda_init()): pass",
        "from torch._C import *",
        "torch._C._cuda_clearCublasWorkspaces.foo.bar()",
        "torch._C._cuda_clearCublasWorkspaces.__class__",
        "triton.runtime.driver.active.get_current_target.__func__",
        "import triton.tools.tensor_descriptor as t\nt.torch.load('x')",
        "from triton.tools.tensor_descriptor import torch as t\nt.load('x')",
        "from triton.tools.tensor_descriptor import dataclass",
        "from triton.tools.tensor_descriptor import TensorDescriptor as T\nT.from_tensor.__func__",
        # functions that look at a module, under whose names others stand that hand it on
        "def hasattr(m, n): return m\nhasattr(torch._C, 'x').PyTorchFileReader('a')",
        "hasattr = lambda m, n: m\nhasattr(torch, 'x').load('a')",
        "def f(getattr): return getattr(torch._C, 'x')",
        "def f(setattr): return setattr(torch, 'x')",
        "[hasattr(torch._C, 'x') for hasattr in [max]]",
        "if hasattr := max: hasattr(torch, 'x').load",
        "match max:\n    case hasattr:\n        hasattr(torch, 'x')",
        "from math import dist as hasattr\nhasattr(torch, 'x')",
        "import operator as isinstance\nisinstance(torch.nn.Module, 1)",
        "class A:\n    hasattr = max\n    c = hasattr(torch, 'x')",
        "torch._import_dotted_name('o' + 's')",
        "torch.nn.functional.torch.load('x')",
        "F.np.load('x')",
        "np.savez_compressed('x')",
        "torch.ones(1).numpy().dump('x')",
        "torch.UntypedStorage.from_file('x', True, 4)",
        "torch.ops.aten.from_file('x')",
        "torch.serialization.load('x')",
        "torch.PyTorchFileWriter('x')",
        "from torch import *",
        "from torch import utils\nutils.data",
        "from triton.runtime.autotuner import driver",
        "from triton.runtime import driver\ndriver.active.utils.load_binary",
        "from triton.runtime import driver\ndevices = [driver]",
        # attributes by computed names
        "getattr(torch, 'o' + 's')",
        "getattr(torch, 'l' + 'oad')",
        "name = 'os'\ngetattr(torch, name)",
        "getattr(torch, f'{chr(111)}s')",
        "import functools\nfunctools.reduce(getattr, ['os'], torch)",
        "look = getattr",
        "import operator\noperator.attrgetter('os')(torch)",
        "import operator\noperator.methodcaller('__subclasses__')(object)",
        "from operator import attrgetter",
        "vars(torch)['os']",
        "def f(vars=vars):\n    return vars(f)",
        "torch.__dict__['os']",
        "(lambda: 0).__dict__",
        "t = torch\nt.os",
        "t = torch",
        "u = torch.autograd\nu.profiler.profile()",
        "f(torch.cuda)",
        "f(np)",
        "x = getattr(torch, 'cuda').cudart()",
        "match torch:\n    case object(os=x):\n        pass",
        "match 1:\n    case Point(x):\n        pass",
        "x = '{0.__globals__}'.format(f)",
        "import typing\nclass T:\n    a: '__import__(1)'",
        "import typing\ntyping.get_type_hints(f)",
        "import functools\n@functools.singledispatch\ndef f(x): pass",
        "import functools\nfunctools.wraps(f, assigned=('a',))",
        "type.mro(int)",
        "async def f(): yield\nf().ag_frame",
        "kernel.get_capture_scope()",
        "help()",
        # other people's calls and memory
        "import torch.overrides",
        "from torch.utils._python_dispatch import TorchDispatchMode",
        "torch.library.Library('aten', 'IMPL')",
        "torch.profiler.profile()",
        "torch.cuda.cudart()",
        "torch.cuda.GreenContext.create(8, 0)",
        "torch.cuda.green_contexts.GreenContext.create(8, 0)",
        "torch.cuda.ExternalStream(2)",
        "torch.cuda.get_stream_from_external(2)",
        "torch.cuda.memory._record_memory_history()",
        "class A:\n    __cuda_array_interface__ = {}",
        "class A:\n    @property\n    def __array_interface__(self): pass",
        "class A(type):\n    def __instancecheck__(cls, x): return True",
        # patches
        "torch.cuda.synchronize: object = None",
        "for torch.cuda.synchronize in [None]:\n    pass",
        "torch.relu, x = 1, 2",
        "x = torch.ones(1)\ntype(x).double = None",
        "x.__class__.double = None",
        "import warnings\nwarnings.showwarning = None",
        "relu = torch.relu\nrelu.x = 1",
        "delattr(torch, 'relu')",
        # modules in containers, and through what comes out of them
        "x = [torch.random][0]",
        "x = (torch.autograd.graph,)[0].logging.io.open",
        "x = {0: np.random}[0]",
        "x = [F][0].torch",
        "x = f()[0].torch",
        "x = f()._utils",
        "x = f().io.open",
        "x = f()._import_dotted_name('gc')",
        "x = f().collect_env.run if f().logging else None",
        "getattr(f(), 'logging')",
        "run = torch.relu\nrun = torch.utils\nrun.collect_env",
        "def f():\n    t = torch.autograd\n    return [t]",
        "from torch import random as draw\nx = [draw]",
        "import torch.nn.modules.module as m\nx = (m,)",
        "f(torch.nn.functional.F)",
        "class A:\n    if f:\n        kind = torch.autograd",
        # classes of torch under other names
        "kind = [torch.Tensor][0]\nkind.copy_ = f",
        "for kind in (torch.Tensor,):\n    kind.copy_ = f",
        "(lambda k: setattr(k, 'copy_', f))(torch.Tensor)",
        "def patch(k):\n    k.copy_ = f\npatch(torch.Tensor)",
        "def patch(k=torch.Tensor):\n    k.copy_ = f",
        "kind, rest = torch.Tensor, 1",
        "kinds = {'t': torch.cuda.Event}",
        "if (kind := torch.Tensor):\n    kind.copy_ = f",
        "x = [setattr(k, 'copy_', f) for k in [torch.Tensor]]",
        "kind = torch.Tensor if f else None",
        "kind = None or torch.nn.Module",
        "def pick():\n    return torch.Tensor",
        "import typing\nkind = typing.cast(int, torch.Tensor)",
        "import typing\nkind = typing.get_args(list[torch.Tensor])[0]",
        "kind = list[torch.Tensor].__args__[0]",
        "def isinstance(x, k):\n    k.copy_ = f\nisinstance(1, torch.Tensor)",
        "from torch import Tensor\nkind = [Tensor][0]",
        "def f():\n    T = torch.Tensor\n    return [T]",
        "class A:\n    def f(self):\n        self.copy_ = 1\nA.f(torch.Tensor)",
        "class A:\n    def f(self):\n        self.copy_ = 1\nA.f(type(torch.ones(1)))",
        "class A:\n    def f(self):\n        self.copy_ = 1\nA.f(torch.ones(1).__class__)",
        "class A:\n    kind = torch.Tensor",
        "kinds = list(map(type, [torch.ones(1)]))",
        "kind = type('T', (), {})",
        "type.__setattr__(f(), 'copy_', f)",
        "f().__setattr__('copy_', f)",
        "import functools\nfunctools.wraps(f)(f)",
        # patches of what is not the file's own
        "x = torch.ones(1)\nx.double = None",
        "owner = torch.ones(1).untyped_storage()\nowner.results = {}",
        "for layer in (torch.nn.ReLU,):\n    layer.forward = None",
        "def patch(k=torch.nn.ReLU):\n    setattr(k, 'forward', None)",
        "[torch.nn.ReLU][0].forward = None",
        "with f() as k:\n    k.copy_ = None",
        "class A:\n    pass\nA = f()\nA.copy_ = None",
        "class A:\n    def f(self, x):\n        self = x\n        self.copy_ = 1",
        "class A:\n    def f(self):\n        self.x.__class__ = None",
        "super(A, A).copy_ = None",
        "x, f().relu = 1, 2",
        "torch.nn.modules.module.register_module_forward_pre_hook(f)",
        "from torch.nn.modules.module import register_module_forward_hook",
        # answers instead of results
        "class Later(torch.Tensor):\n    pass",
        "class Later(torch.nn.UninitializedParameter):\n    pass",
        "class Word(torch.nn.parameter._ParameterMeta):\n    pass",
        "def again(kind):\n    kind.__init__('fp16')\nagain(tl.float32)",
        "x = torch.ones(1).as_subclass(f)",
        "class A:\n    def __torch_function__(self): pass",
        # attributes by computed names, evaluated strings
        "import dataclasses\ndataclasses.asdict(f)",
        "from dataclasses import replace",
        "import dataclasses\ndataclasses.fields(f)[0].name",
        "class A:\n    __dataclass_fields__ = {}",
        "class A:\n    __annotations__ = {'x=f()': int}",
        "x = dict(__annotations__=1)",
        "import enum\nenum.global_enum(f)",
        # descriptors and shared memory
        "torch.ones(1).untyped_storage()._new_with_file(3, 4)",
        "s = torch.ones(1).untyped_storage()\ns._new_shared_fd_cpu(3, 4)",
        "torch.ones(1).untyped_storage()._share_fd_cpu_()",
        "torch.ones(1).share_memory_()",
        "class A:\n    def f(self):\n        return self._share_filename_cpu_()\nA.f(torch.ones(1).untyped_storage())",
        "getattr(f(), '_new_with_file')",
        # the way back from an error to the module, other people's operators
        "class A:\n    obj = 1\ntry:\n    torch.foo\nexcept AttributeError as e:\n    e.obj.load('x')",
        "torch.ops.aten.copy_.default.py_impl(1)(f)",
        # private parts
        "f()._cudart",
        "f().__func__",
        "class A:\n    def f(self):\n        return self.x._secret",
    ],
)
def test_refuses_what_no_kernel_needs(text: str) -> None:
    outcome = audit(HEAD + text + TAIL)
    assert outcome is not None and outcome.status == "rejected", text
    assert outcome.diagnosis is not None and outcome.diagnosis.line is not None
    assert outcome.diagnosis.line >= HEAD.count("\n") + 1


@pytest.mark.parametrize(
    "text",
    [
        "import math, functools, itertools, collections.abc\nfrom typing import Any\nfrom dataclasses import dataclass",
        "from __future__ import annotations",
        "from triton.language.extra import libdevice\nimport triton.language.extra.cuda.libdevice as cuda",
        "from torch.autograd import Function\nfrom torch.nn.utils import fusion",
        "y = torch.select(torch.ones(3, 3), 0, 1)\nz = torch.signal\nt = torch.types",
        "def forward(input, vars, os=None):\n    return input + 1",
        "model = torch.nn.Linear(1, 1).eval()",
        "class State:\n    pass\nState.cache = None\nself = State()\nself.stride = 1",
        "getattr(F, 'gelu')",
        "np.prod((1, 2))",
        "x = torch._foreach_add([], 1)\ntorch.ops.aten._softmax.default\ntorch._assert(True, '')",
        "from torch.nn.modules.utils import _pair\nfrom torch.nn.modules.batchnorm import _BatchNorm",
        "torch.__version__.split('.')",
        "class ModelA(torch.nn.Module):\n    def forward(self, x):\n        return getattr(self, f'layer{x}')",
        "class A:\n    pass\nsetattr(A, 'stride', 1)",
        "class A:\n    def f(self):\n        type(self).cache = 1\n        self.__class__.count = 2",
        "from triton.runtime import driver\ndriver.active.utils.get_device_properties(0)",
        "from triton.tools.tensor_descriptor import TensorDescriptor\nTensorDescriptor.from_tensor(torch.ones(4), [4])",
        "import triton.tools.tensor_descriptor as td\ntd.TensorDescriptor(1, 2, 3, 4)",
        "import triton.language as tl\nhas = hasattr(tl, 'float8e4nv')\nwide = getattr(torch, 'float64')",
        "def f(x):\n    vars = x.var()\n    return vars + 1",
        "functional = torch.nn.functional\nnn = torch.nn\nnn.Linear\nfunctional.gelu",
        "kinds = {'a': torch.float16}\nact = torch.relu\nact(1)",
        "match 3:\n    case int():\n        pass",
        "import collections.abc\ncollections.abc.Iterable\nimport math\nmath.prod",
        "from typing import Optional\ndef f(x: Optional[torch.Tensor], y: 'int' = 1) -> list[torch.Tensor]: pass",
        "from typing import Tuple, Callable\nPair = Tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]",
        "x = 1\nok = isinstance(x, (torch.Tensor, int)) or type(x) is torch.Tensor\nTensor = torch.Tensor\nTensor(1)",
        "def f(x: torch.Tensor | None = None):\n    raise TypeError(f'{type(x)}, {type(x).__name__}')",
        "try:\n    pass\nexcept (torch.cuda.OutOfMemoryError, RuntimeError):\n    pass",
        "stream, event = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True)\nevent.record(stream)",
        "def block(norm=torch.nn.LayerNorm, act=torch.nn.GELU):\n    return [kind() for kind in (norm, act)]",
        "layers = {'relu': torch.nn.ReLU}\nacts = [torch.relu, F.gelu, torch.float16]",
        "class A(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        ctx.n = 1",
        "def setup(ctx):\n    ctx.scale = 1",
        "class A(torch.nn.Module):\n    def _init(self):\n        self.lin.weight.data = 1\n        self.lin.bias = None",
        "class B:\n    def f(self):\n        self._n = 0\n        self.calls = 0\ndef bump(b):\n    b.calls += b._n",
        "def freeze(model):\n    for p in model.parameters():\n        p.requires_grad = False\n        p.grad = None",
        "def hook(nargs):\n    nargs['a'].block_shape = [nargs['M'], 64]",
        "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass C:\n    time: float = 0\nx = C()\nx.time",
        "class C:\n    def __init__(self):\n        object.__setattr__(self, 'n', 1)",
        "class M(torch.nn.Module):\n    def __setattr__(self, n, v):\n        super().__setattr__(n, v)",
        "x = torch.ones(1)\nx.select(0, 0).numpy().copy()\nx._version",
        "class M(torch.nn.Module):\n    class _Block:\n        pass\n    def f(self):\n        return M._Block()",
        "ok = torch.backends.cudnn.is_available() and torch.backends.cuda.matmul.allow_tf32",
        "import functools\ndef deco(f):\n    @functools.wraps(f)\n    def inner(*a):\n        return f(*a)",
        "cfg = triton.Config({}, num_warps=4)\ncfg.num_stages = 2\nconv = torch.nn.Linear(1, 1)\nconv.scale = 2",
        "layer = 1\nprint(layer.__class__.__name__)",
        '"""A text about __globals__ and torch.os."""',
        "if __name__ == '__main__':\n    import os\n    os.system('true')",
    ],
)
def test_lets_honest_text_pass(text: str) -> None:
    source = text + "\nimport torch, triton\nimport numpy as np\nimport torch.nn.functional as F" + TAIL
    assert audit(source) is None


def test_imports_of_the_reference_are_allowed_unless_forbidden() -> None:
    source = HEAD + "from einops import rearrange\n" + TAIL
    assert audit(source, reference="from einops import rearrange") is None
    assert audit(source) is not None
    forbidden = HEAD + "import os\n" + TAIL
    assert audit(forbidden, reference="import os") is not None


def test_first_refusal_in_the_text_is_named() -> None:
    outcome = audit(HEAD + "torch.os\nimport socket" + TAIL)
    assert outcome is not None and outcome.diagnosis is not None
    assert outcome.diagnosis.line == 5 and "torch.os" in outcome.diagnosis.message


KERNELS = """import torch
import triton
import triton.language as tl
from triton import jit


{before}
{decorator}
def kernel(x_ptr, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    {asks}
    tl.store(x_ptr + at, x, mask=at < n)


{after}
class ModelNew(torch.nn.Module):
    def forward(self, x):
        kernel[(1,)](x, x.numel(), 1.0, BLOCK=64)
        return x
"""
CONSTANT = "@triton.constexpr_function\ndef here(n):\n    {}\n\n"


def of_kernel(asks: str = "pass", decorator: str = "@triton.jit", before: str = "", after: str = "") -> Outcome | None:
    return audit(KERNELS.format(asks=asks, decorator=decorator, before=before, after=after))


@pytest.mark.parametrize(
    "given",
    [
        {"asks": "y = getattr(x.handle, 'data', None)"},
        {"asks": "y = x.handle"},
        {"asks": "y = isinstance(scale, tl.tensor)"},
        {"asks": "y = callable(BLOCK)", "decorator": "@jit"},
        {"asks": "y = hasattr(x, 'numel')", "decorator": "@triton.jit(do_not_specialize=['n'])"},
        {"asks": "y = str(x)", "decorator": "", "after": "compiled = triton.jit(kernel)\n\n"},
        {"after": CONSTANT.format("return isinstance(kernel, triton.JITFunction)")},
        {"after": CONSTANT.format("return kernel == n")},
        {"after": CONSTANT.format("try:\n        return n.missing\n    except AttributeError:\n        return 1")},
    ],
    ids=str,
)
def test_a_kernel_must_not_ask_what_runs_it(given: dict[str, str]) -> None:
    outcome = of_kernel(**given)
    assert outcome is not None and outcome.status == "rejected" and outcome.diagnosis is not None
    assert "in a kernel" in outcome.diagnosis.message or "in a function of constants" in outcome.diagnosis.message


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"asks": "id = tl.num_programs(0)\n    x += id"},
        {"asks": "x = x.to(tl.float32) if x.dtype == tl.float16 else x"},
        {"asks": "tl.static_assert(len(x.shape) == 1)\n    print('x', x)"},
        {"after": CONSTANT.format("return max(n, 16) if n else int(n)")},
        {"after": "def about(x):\n    return isinstance(x, torch.Tensor) and hasattr(x, 'shape')\n\n"},
    ],
    ids=str,
)
def test_what_kernels_may_ask(given: dict[str, str]) -> None:
    assert of_kernel(**given) is None

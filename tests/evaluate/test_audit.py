"""The audit refuses by reading alone: what it must refuse, and honest texts that it must not."""

from __future__ import annotations

import pytest
from evaluate_sources import HONEST, changed, line_of

from mtmc.evaluate.gates.audit import audit

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
        "if __name__ == '__main__':\n    import os\n    os.system('true')",
    ],
)
def test_lets_honest_text_pass(text: str) -> None:
    source = text + "\nimport torch\nimport numpy as np\nimport torch.nn.functional as F" + TAIL
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

"""A file is imported by itself before it is handed out: what it takes from others' imports it does not have."""

from __future__ import annotations

import pytest
from evaluate_sources import HONEST

from mtmc.evaluate import LabEvaluator

HEAD = "import torch\nimport triton\nimport triton.language as tl\n"
TAIL = "\n\nclass ModelNew(torch.nn.Module):\n    pass\n"


@pytest.mark.parametrize(
    "source",
    [
        HONEST,
        HEAD + "from triton.language.extra import libdevice\nimport torch._dynamo.config\nx = libdevice.abs" + TAIL,
        HEAD + "import numpy as np\nx = np.random.rand(1)\ny = torch.fft.fft, torch.testing, 'ï'" + TAIL,
        HEAD + "import dataclasses\n\n@dataclasses.dataclass\nclass C:\n    x: 'int' = 1" + TAIL,
    ],
)
def test_what_imports_its_own_passes(usual_lab: LabEvaluator, source: str) -> None:
    assert usual_lab.imports(source) is None


@pytest.mark.parametrize(
    ("source", "kind", "line"),
    [
        ("import torch\nx = triton.cdiv(3, 2)" + TAIL, "NameError", 2),
        (HEAD + "x = triton.language.extra.libdevice.abs" + TAIL, "AttributeError", 4),
        ("import torch\ndef f(x: Tensor): pass" + TAIL, "NameError", 2),
        ("# coding: latin-7\n" + HEAD + TAIL, "SyntaxError", None),
        (HEAD + "import mtmc_reference" + TAIL, "ModuleNotFoundError", 4),
        (HEAD, "AttributeError", None),
        (HEAD + "raise SystemExit" + TAIL, "ProcessExit", None),
    ],
)
def test_what_leans_on_others_is_rejected(usual_lab: LabEvaluator, source: str, kind: str, line: int | None) -> None:
    outcome = usual_lab.imports(source)
    assert outcome is not None and outcome.status == "rejected" and outcome.diagnosis is not None
    assert (outcome.diagnosis.stage, outcome.diagnosis.kind, outcome.diagnosis.line) == ("verify", kind, line)

"""What the compiler says of a kernel reaches the model that is to repair it, where Triton's exception does not say it."""

from __future__ import annotations

from dataclasses import replace

from mtmc.agents.coders.editing.prompt import edit_messages
from mtmc.evaluate.audit.diagnosis import with_compiler_text
from mtmc.evaluate.lab import LabEvaluator
from mtmc.outcome import Diagnosis
from mtmc.protocols import EvaluationRequest
from tests.agents.versions import CHILD, edit_request, small_task

ASM = "    x = tl.inline_asm_elementwise('mov.b32 $0, $1;', '=r,r', [x], dtype=tl.float32, is_pure=True, pack=3)\n"
BROKEN = CHILD.replace("    tl.store(", f"{ASM}    tl.store(")
SAID = "number of input elements 1024 must be a multiple of the op's packed_element attribute, 3"


def test_an_error_that_mlir_prints_is_in_the_diagnosis_and_in_the_question(lab: LabEvaluator) -> None:
    [outcome] = lab.evaluate([EvaluationRequest(small_task(), BROKEN)])
    found = outcome.diagnosis
    assert outcome.status == "build_error" and found is not None and found.stage == "build"
    assert SAID in found.message and found.line is not None and "inline_asm" in BROKEN.split("\n")[found.line - 1]
    asked = edit_messages(edit_request(feedback=found, failed_source=BROKEN))[1].content
    assert SAID in asked


def test_what_is_printed_is_added_once_and_only_to_a_failed_build() -> None:
    output = 'warming up\nmtmc_candidate.py:13:4: error: bad layout\nloc("x.py":1:2): error: bad layout\nother: error\n'
    failed = Diagnosis("build", "RuntimeError", "PassManager::run failed", None)
    told = with_compiler_text(failed, output, CHILD)
    assert told.message == "PassManager::run failed; bad layout" and told.line == 13
    assert "> 13 |" in told.excerpt
    assert with_compiler_text(told, output, CHILD) == told
    named = 'loc("x"("/tmp/a/mtmc_candidate.py":12:18)): error: worse layout\n'
    assert with_compiler_text(failed, named, CHILD).line == 12
    called = 'loc(callsite("mtmc_candidate.py":11:1 at "mtmc_candidate.py":14:2)): error: worse layout\n'
    assert with_compiler_text(failed, called, CHILD).line == 11
    for place in ("", "<unknown>:0: ", "loc(unknown): "):
        without = with_compiler_text(replace(failed, line=9), f"{place}error: worse layout\n", CHILD)
        assert (without.message, without.line) == ("PassManager::run failed; worse layout", 9)
    checked = Diagnosis("check", "Mismatch", "off by 1", 3)
    assert with_compiler_text(checked, output, CHILD) == checked
    assert with_compiler_text(failed, "nothing of note\n", CHILD) == failed

"""Products with the transpose of a matrix: kernels read the matrix itself, whose rows lie as products like them."""

from __future__ import annotations

import pytest

from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference

W = "self.w = nn.Parameter(torch.randn(m, n) / 8)"
X = "torch.randn(9, n)"
TRANSPOSED = {
    "T": reference("x @ self.w.T", X, W),
    "t": reference("torch.relu(x @ self.w.t()) + 1", X, W),
    "transpose": reference("torch.mm(x, self.w.transpose(0, 1))", X, W),
    "from_the_end": reference("torch.matmul(x, self.w.transpose(-1, -2)).tanh()", f"{X[:-1]}, dtype=torch.float32)", W),
    "mT": reference("x.view(3, 3, -1) @ self.w.mT", X, W),
    "addmm": reference("torch.addmm(y, x, self.w.t())", f"{X}, torch.randn(m)", W),
    "scaled": reference("torch.addmm(y, x, self.w.t(), beta=0.5, alpha=2.0)", f"{X}, torch.randn(9, m)", W),
    "that_comes_in": reference("(x @ y.T).sigmoid()", f"{X}, torch.randn(7, n)"),
    "its_own": reference("x @ x.T", X),
    "read_elsewhere": reference("(x @ self.w.T) + self.w.T.sum(0)", X, W),
    "handed_out": reference("(lambda t: (x @ t, t))(self.w.T.contiguous())", X, W),
}
STAY = {
    "of_what_is_computed": reference("x @ (self.w * 2).T", X, W),
    "of_a_batch": reference("x @ y.transpose(1, 2)", "torch.randn(2, 9, n), torch.randn(2, 7, n)"),
}


@pytest.mark.parametrize("name", ["T", "t", "transpose", "mT", "addmm", "scaled", "that_comes_in"])
def test_the_matrix_is_read_through_descriptors_and_its_transpose_is_not_made(name: str) -> None:
    source = TRANSPOSED[name].replace("n = 64", "n = 512").replace("torch.randn(9, n)", "torch.randn(256, n)")
    task = task_from_source(
        source.replace("torch.randn(9, m)", "torch.randn(256, m)").replace("view(3, 3", "view(2, 128"), "right"
    )
    version = Version.of(task, root_plan(export_graph(task)), hardware("H100"))
    move = next(
        each for each in legal_moves(version) if each.action.kind == "lower" and "m" in each.action.sentence.split()[1]
    )
    assert move.child is not None
    [kernel] = [stage for stage in move.child.stages if stage.template == "matmul"]
    text = print_plan(task, version.graph, move.child).source
    assert dict(kernel.schedule).get("operands") == "descriptors"
    forward = text[text.index("def forward") :]
    assert not any(word in forward for word in ("torch.t(", "torch.transpose(", ".mT", "torch.permute("))


def test_all_are_right() -> None:
    cases = [
        {"name": name, "source": text, "ways": [["lower"], ["fuse", "lower"]]}
        for name, text in (TRANSPOSED | STAY).items()
    ]
    assert interpret(cases) == dict.fromkeys(TRANSPOSED | STAY)

"""text: a program at its sizes as the text of a task."""

from __future__ import annotations

from collections.abc import Mapping

from mtmc.rl.generator.program import DTYPES, Program

_WIDTH = 116


def task_text_of(program: Program, full: Mapping[str, int], variants: Mapping[str, Mapping[str, int]]) -> str:
    """The file, in the form of the built-in tasks."""
    words = ", ".join(step.op for step in program.steps)
    lines = [f'"""A generated task: {_short(words)}."""', "", "import torch", "from torch import nn", ""]
    lines += [f"{name} = {full[name]}" for name in program.sizes]
    lines += ["", "VARIANTS = {"]
    for label, sizes in variants.items():
        inner = ", ".join(f'"{name}": {sizes[name]}' for name in program.sizes)
        lines.append(f'    "{label}": {{{inner}}},')
    lines += ["}", "", "", "class Model(nn.Module):"]
    arguments = "".join(f", {name}" for name in program.arguments)
    if program.modules:
        lines += [f"    def __init__(self{arguments}):", "        super().__init__()"]
        lines += [f"        self.{name} = {constructor}" for name, constructor in program.modules.items()]
        lines.append("")
    lines.append(f"    def forward(self, {', '.join(each.name for each in program.inputs)}):")
    lines += [f"        {step.result.name} = {step.text}" for step in program.steps]
    lines += [f"        return {', '.join(program.outputs)}", "", "", "def get_inputs():", "    return ["]
    lines += [f"        {_drawn(value.dims, program.dtype)}," for value in program.inputs]
    init = ", ".join(program.arguments)
    lines += ["    ]", "", "", "def get_init_inputs():", f"    return [{init}]", ""]
    return "\n".join(lines)


def _drawn(dims: tuple[str, ...], dtype: str) -> str:
    """Normal numbers of deviation 2, so that softmax has something to tell apart."""
    cast = "" if dtype == "fp32" else f".to(torch.{DTYPES[dtype]})"
    drawn = f"2 * torch.randn({', '.join(dims)})"
    return f"({drawn}){cast}" if cast else drawn


def _short(words: str) -> str:
    return words if len(words) <= _WIDTH - 25 else words[: _WIDTH - 28].rpartition(",")[0] + ", ..."

"""draft: a program in the making."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from mtmc.rl.generator.program import Dims, Program, Step, Value
from mtmc.rl.generator.table import KEEPS, Row

_INPUT_NAMES = ("x", "y", "z", "u", "v", "w")
_LETTERS = "abcdefghijklmnopqrs"
MOST_INPUTS = 4


@dataclass
class Draft:
    """A program in the making. current: the value that the next step works on."""

    rng: random.Random
    dtype: str
    inputs: list[Value] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    modules: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, None] = field(default_factory=dict)
    weights: list[Dims] = field(default_factory=list)
    products: int = 0
    current: Value = field(default_factory=lambda: Value("x", ()))

    def add_input(self, dims: Dims) -> Value:
        """One more input."""
        value = Value(_INPUT_NAMES[len(self.inputs)], dims)
        self.inputs.append(value)
        return value

    def add_module(self, stem: str, constructor: str, sizes: Sequence[str]) -> str:
        """The name of one more attribute of the model. sizes: the names of sizes in its constructor."""
        name = f"{stem}{sum(each.rstrip('0123456789') == stem for each in self.modules) + 1}"
        self.modules[name] = constructor
        self.arguments.update(dict.fromkeys(sizes))
        return name

    def add_step(
        self,
        row: Row,
        text: str,
        reads: Sequence[str],
        dims: Dims,
        traits: frozenset[str],
        inner: str = "",
        times: int = 1,
        across: str = "",
    ) -> Value:
        """One more line; its result is the current value from now on. The rest as in `program.Step`."""
        at = len(self.steps)
        name = _LETTERS[at] if at < len(_LETTERS) else f"{_LETTERS[at % len(_LETTERS)]}{at // len(_LETTERS)}"
        result = Value(name, dims, traits)
        reads = tuple(dict.fromkeys(reads))
        self.steps.append(Step(row.name, text, reads, result, row.flops, inner, times, row.passes, across))
        self.current = result
        return result

    def apply(
        self, op: str, text: str, dims: Dims | None = None, *, gives: str = "", flops: int = 1, passes: int = 1
    ) -> Value:
        """A step on the current value ({x} in `text`) that no row of the table tells. The rest as in `Row`."""
        x = self.current
        kept = x.traits if gives == KEEPS else frozenset(gives.split())
        return self.add_step(
            Row(op, "", flops=flops, passes=passes), text.format(x=x.name), [x.name], dims or x.dims, kept
        )

    def parameter(self, stem: str, text: str, dims: Dims, ones: int = 0) -> str:
        """A parameter of the model, drawn by `text` ({d} is its shape), with `ones` more dimensions of 1 behind."""
        shape = ", ".join((*dims, *("1",) * ones))
        self.weights.append(dims)
        return f"self.{self.add_module(stem, f'nn.Parameter(({text.format(d=shape)}){self.cast})', dims)}"

    def number(self, row: Row) -> float:
        """One of a row's numbers."""
        return self.rng.choice(row.numbers) if row.numbers else 0.0

    def chance(self, share: float) -> bool:
        """True for this share of the draws."""
        return self.rng.random() < share

    @property
    def float_dtype(self) -> str:
        """The argument of a module's constructor for the draft's dtype."""
        return {"fp32": "", "fp16": ", dtype=torch.float16", "bf16": ", dtype=torch.bfloat16"}[self.dtype]

    @property
    def cast(self) -> str:
        """What turns a drawn tensor into the draft's dtype."""
        return {"fp32": "", "fp16": ".to(torch.float16)", "bf16": ".to(torch.bfloat16)"}[self.dtype]

    def program(self, kind: str) -> Program:
        """The program as it is now. It returns the last value, and any other that nothing reads."""
        read = {name for step in self.steps for name in step.reads}
        return Program(
            kind=kind,
            dtype=self.dtype,
            inputs=tuple(self.inputs),
            steps=tuple(self.steps),
            outputs=tuple(step.result.name for step in self.steps if step.result.name not in read),
            modules=dict(self.modules),
            arguments=tuple(self.arguments),
            weights=tuple(self.weights),
        )

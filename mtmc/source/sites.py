"""sites: where a version without a plan may be changed, by its syntax tree: the calls of its forward, its kernels.

The rewriter says what is legal on its own plans. A file that a model wrote has none; each kind of optimization says what it
offers on what is found here (`Optimization.sites`). How it is done is left to the model.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mtmc.action import Region
from mtmc.evaluate.audit.cuda_text import CudaText, cuda_texts
from mtmc.source.calls import Call, forward_calls
from mtmc.source.structure import Function, Structure, span
from mtmc.syntax import parse

_REDUCTIONS = frozenset(("sum", "max", "min", "argmax", "argmin", "reduce", "xor_sum"))
_CUDA_LOOP = re.compile(r"\b(?:for|while)\s*\(")
_CUDA_BLOCKS = re.compile(r"\b(?:blockDim|blockIdx|threadIdx)\b")
_CUDA_DOT = re.compile(r"\b(?:wmma|mma_sync|wgmma|mma)\b")
_CUDA_REDUCTION = re.compile(r"\b(?:__shfl\w*|atomic\w+|__reduce\w*|BlockReduce|WarpReduce)\b")


@dataclass(frozen=True)
class Sites:
    """What may be changed in a file. calls: of its forward, in order. kernels: Triton's in the file's order, then those in
    CUDA C++."""

    calls: tuple[Call, ...] = ()
    kernels: tuple[Kernel, ...] = ()

    @classmethod
    def of(cls, source: str) -> Sites:
        """The sites of a file; none in a text that does not parse."""
        try:
            tree = parse(source)
            structure = Structure.of(tree)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return cls()
        kernels = structure.kernels
        found = [Kernel.of_triton(_region(each, kernels), each) for each in kernels]
        texts = {(text.code, text.name): text for text in cuda_texts(tree, source)[0]}
        found += [Kernel.of_cuda(_cuda_region(text), text.code) for text in texts.values()]
        return cls(tuple(forward_calls(structure)), tuple(found))

    def rows(self) -> list[list[Call]]:
        """The calls that stand in a row each."""
        return [[call for call in self.calls if call.run == run] for run in dict.fromkeys(c.run for c in self.calls)]


@dataclass(frozen=True)
class Kernel:
    """A kernel of the file.

    blocks, memory, loop, loads_in_loop, dot, reduction, exact_dot: whether it makes blocks, reads or writes memory, loops,
    reads in a loop, multiplies blocks, reduces one, or multiplies in plain fp32.
    """

    region: Region
    blocks: bool
    memory: bool
    loop: bool
    loads_in_loop: bool
    dot: bool
    reduction: bool
    exact_dot: bool = False

    @classmethod
    def of_triton(cls, region: Region, function: Function) -> Kernel:
        """By its syntax tree."""
        calls = list(_calls(function))
        names = {name for name, _ in calls}
        loops = [node for node in ast.walk(function) if isinstance(node, ast.For | ast.While)]
        return cls(
            region,
            blocks="arange" in names or bool(names & {"make_block_ptr", "make_tensor_descriptor"}),
            memory=bool(names & {"load", "store"}),
            loop=bool(loops),
            loads_in_loop=any(name == "load" for loop in loops for name, _ in _calls(loop)),
            dot="dot" in names,
            reduction=bool(names & _REDUCTIONS),
            exact_dot=any(name == "dot" and _is_exact(call) for name, call in calls),
        )

    @classmethod
    def of_cuda(cls, region: Region, code: str) -> Kernel:
        """By the words of its text: loops read memory as a rule."""
        loop = _CUDA_LOOP.search(code) is not None
        return cls(
            region,
            blocks=_CUDA_BLOCKS.search(code) is not None,
            memory=True,
            loop=loop,
            loads_in_loop=loop,
            dot=_CUDA_DOT.search(code) is not None,
            reduction=_CUDA_REDUCTION.search(code) is not None,
        )


def _cuda_region(text: CudaText) -> Region:
    """The lines of a CUDA text under its kernel's name, without template arguments; of the call that makes the kernel where
    the text's lines are not the file's."""
    first = text.line if text.first is None else text.first
    last = first if text.first is None else first + len(text.code.rstrip().splitlines()) - 1
    return Region(_short(text.name.partition("<")[0]), first, max(first, last))


def _calls(node: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """The calls in some code, each with the last part of its name."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
            yield each.func.attr, each
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Name):
            yield each.func.id, each


def _is_exact(dot: ast.Call) -> bool:
    """Whether a tl.dot is told to compute in plain fp32."""
    return any(
        isinstance(keyword.value, ast.Constant)
        and (keyword.arg, keyword.value.value) in (("input_precision", "ieee"), ("allow_tf32", False))
        for keyword in dot.keywords
    )


def _region(kernel: Function, kernels: Sequence[Function]) -> Region:
    """A kernel's lines under its name, which is short ("softmax" of softmax_kernel) where that is its alone."""
    short = _short(kernel.name)
    alone = sum(_short(other.name) == short for other in kernels) == 1
    first, last = span(kernel)
    return Region(short if alone else kernel.name, first, last)


def _short(name: str) -> str:
    return name.strip("_").removesuffix("_kernel").removeprefix("kernel_") or name

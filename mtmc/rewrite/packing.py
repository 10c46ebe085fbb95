"""packing: what a forward computes from its module's tensors alone, made at the first call and kept until one changes.

Permuted, scaled, joined or unpacked weights are the same at every call. They are made in a method of their own, `pack`,
whose results are kept together with the addresses, versions and forms of the tensors that they were made of. Where nobody
can tell whether those have changed, or a gradient is to flow through them, they are made anew at every call.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from mtmc.rewrite.copies import Copy
from mtmc.rewrite.expansion import build
from mtmc.rewrite.folding import INDENT
from mtmc.rewrite.graph import Graph, Op, Size, Varying, is_one
from mtmc.rewrite.open_sizes import is_open
from mtmc.rewrite.operators.table import FREE, table
from mtmc.rewrite.overloads import overload
from mtmc.rewrite.plan import Plan, Stage
from mtmc.rewrite.templates.channels_last import is_channels_last
from mtmc.rewrite.templates.conv_rounding import is_rounded, rounded_in_memory
from mtmc.rewrite.templates.positions import analyse
from mtmc.rewrite.write_back import may_alias
from mtmc.task import Task

_HELPER = '''\
class Packs:
    """What a module computes from its own tensors alone, kept until one of them changes.

    A change is seen by a tensor's address, form and version, which whatever changes it in place raises; `tensor.data` has a
    version of its own, so change weights under `torch.no_grad()` instead. The tensors' memory is kept as well: no other
    tensor can come to lie at an address that is remembered.
    """

    def __init__(self):
        self.key, self.sources, self.made = None, (), ()

    def __reduce__(self):
        return Packs, ()  # the copy of a module makes its own

    @staticmethod
    def fit(held):
        """Whether what is made now may be kept: without gradients, and where a change would be seen."""
        if torch.is_grad_enabled() and any(x.requires_grad for x in held):
            return False
        if torch.compiler.is_compiling() or any(x.is_inference() for x in held):
            return False
        if not held[0].is_cuda:
            return not torch.is_autocast_enabled("cpu")
        return not (torch.is_autocast_enabled("cuda") or torch.cuda.is_current_stream_capturing())

    def of(self, pack, held):
        """What `pack()` returns. held: the module's tensors that it reads."""
        if not self.fit(held):
            return pack()
        stream = torch.cuda.current_stream(held[0].device).cuda_stream if held[0].is_cuda else 0
        forms = [list(map(of, held)) for of in (torch.Tensor.data_ptr, torch.Tensor.size, torch.Tensor.stride)]
        kinds = [(x._version, x.dtype, x.device) for x in held]
        key = (stream, torch.is_inference_mode_enabled(), forms, kinds)
        if key != self.key:
            made = pack()
            self.key, self.sources, self.made = key, [x.detach() for x in held], made
        return self.made
'''


def packed_stages(graph: Graph, plan: Plan) -> list[Stage]:
    """The stages of a plan that are functions of the module's tensors alone, and those before them that they read.

    Left out are random ones, what reads a tensor that forward changes, what forward returns, and what is as long as an input
    says: rotary angles of so many tokens.
    """
    changed = {mutation.target for mutation in graph.mutations}
    known = {value for value in graph.parameters if value not in changed}
    given = _given(graph)
    found = []
    for stage in plan.stages:
        ops = [graph.by_name[name] for name in stage.ops]
        outputs = {output for op in ops for output in op.outputs}
        reads = {ref for op in ops for ref in op.refs()} - outputs
        if not stage.is_torch and any(graph.producer.get(ref) in graph.of_numbers for ref in reads):
            reads = set(build(graph, stage.ops, table).loads)  # a kernel makes a mask itself
        if (
            reads
            and reads <= known
            and not _is_told(graph, stage, ops)
            and not outputs & given
            and not any(map(_draws, ops))
        ):
            found.append(stage)
            known |= outputs
    return _needed(graph, found)


def _is_told(graph: Graph, stage: Stage, ops: Sequence[Op]) -> bool:
    """Whether an input may say how large a result is. A call of torch has its results' sizes from its operands and from the
    numbers that it is given: three weights of different heights that are joined are as high as no size of the module."""
    if stage.is_torch:
        given = [each for op in ops for each in _varying((*op.args, *op.kwargs.values()))]
    else:
        given = [size for op in ops for output in op.outputs for size in graph.values[output].shape]
    return any(is_open(graph, size) for size in given)


def _varying(item: Any) -> Iterator[Size]:
    """The whole numbers among arguments that are other ones at other shapes."""
    if isinstance(item, Varying) and all(isinstance(value, int) for value in item.values):
        yield tuple(int(value) for value in item.values)
    elif isinstance(item, (tuple, list)):
        for part in item:
            yield from _varying(part)


def kept_filters(graph: Graph, plan: Plan, stages: Sequence[Stage]) -> dict[str, Copy]:
    """What convolutions are given of weights that are functions of the module's tensors alone, other than as they are: the
    convolution's op -> that. stages: those that are packed."""
    changed = {mutation.target for mutation in graph.mutations}
    made = {output for stage in stages for name in stage.ops for output in graph.by_name[name].outputs}
    known = made | (set(graph.parameters) - changed)
    found = dict(
        each for stage in plan.stages if is_channels_last(stage) or is_rounded(stage) for each in _filters(graph, stage)
    )
    return {op: filters for op, filters in found.items() if filters.value in known}


def _filters(graph: Graph, stage: Stage) -> Iterator[tuple[str, Copy]]:
    """The convolution of a stage, and its weight, where that is to lie channels last or to be rounded."""
    if stage.is_torch:
        yield stage.ops[0], Copy(graph.by_name[stage.ops[0]].refs()[1], True, False)
    elif stage.template == "convolution":
        body = build(graph, stage.ops, table)
        found = analyse(graph, body)
        node, weight = found.node, found.node.reads()[1]
        op = next(op for op in stage.ops if weight in graph.by_name[op].refs())
        several = node.operation == "convolution" and not all(map(is_one, found.window.size))
        filters = Copy(weight, several and is_channels_last(stage), weight in rounded_in_memory(body, found, stage))
        if filters.last or filters.rounded:
            yield op, filters


def _needed(graph: Graph, stages: Sequence[Stage]) -> list[Stage]:
    """The stages that launch something, and the views that those read: views of weights cost nothing where they are."""
    read, needed = set[str](), []
    for stage in reversed(stages):
        ops = [graph.by_name[name] for name in stage.ops]
        free = stage.is_torch and ops[0].target in FREE
        if not free or any(read & set(op.outputs) for op in ops):
            needed.append(stage)
            read |= {ref for op in ops for ref in op.refs()}
    return needed[::-1]


def _given(graph: Graph) -> set[str]:
    """What forward hands out, and what that may share memory with: whoever gets it may change it."""
    waiting, given = list(graph.results()), set[str]()
    while waiting:
        value = waiting.pop()
        if value in given:
            continue
        given.add(value)
        producer = graph.producer.get(value)
        if producer is not None and may_alias(graph.by_name[producer]):
            waiting += graph.by_name[producer].refs()
    return given


def _draws(op: Op) -> bool:
    """Whether an op draws random numbers."""
    import torch

    found = overload(op.target)
    return found is not None and torch.Tag.nondeterministic_seeded in found.tags


class PackedForward:
    """The parts of the text; names that the reference uses for something else get an underscore."""

    def __init__(self, task: Task) -> None:
        words = set(re.findall(r"\w+", task.source))
        self._names = {name: _free(name, words) for name in ("Packs", "packs", "pack", "packed")}
        self.packed = self._names["packed"]

    def helper(self) -> list[str]:
        """Lines of the class that keeps what was made."""
        return re.sub(r"\bPacks\b", self._names["Packs"], _HELPER).splitlines()

    def head(self) -> str:
        """Head of the method that makes it."""
        return f"def {self._names['pack']}(self):"

    def asked(self, held: Sequence[str]) -> list[str]:
        """Lines that ask for it, as the variable `packed`. held: expressions of the module's tensors that it is made of."""
        packs, pack = f"self.{self._names['packs']}", f"self.{self._names['pack']}"
        tensors = ", ".join(held) + ("," if len(held) == 1 else "")
        return [
            f'if not hasattr(self, "{self._names["packs"]}"):',
            f"{INDENT}{packs} = {self._names['Packs']}()",
            f"{self.packed} = {packs}.of({pack}, ({tensors}))",
        ]


def _free(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name += "_"
    return name

"""forward: the lines of a version's forward, and what they call the reference's arguments, parameters and numbers."""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from mtmc.errors import CoderError
from mtmc.rewrite.copies import Copies, Copy
from mtmc.rewrite.cuda_graph import GraphedForward
from mtmc.rewrite.exact_numbers import exact_numbers
from mtmc.rewrite.folding import INDENT, folded
from mtmc.rewrite.graph import Current, Graph, Op, Ref
from mtmc.rewrite.joined_forward import left_lines, memory_text, part_text
from mtmc.rewrite.joins import Join
from mtmc.rewrite.lying import Lying
from mtmc.rewrite.packing import PackedForward
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.reference_text import forward_signature
from mtmc.rewrite.sizes import NoExpression, Scope
from mtmc.rewrite.templates.channels_last import FORMATS, is_channels_last
from mtmc.rewrite.templates.launcher import Printed
from mtmc.rewrite.torch_call import call_text, gives_one
from mtmc.rewrite.write_back import NORM, WriteBack, counted, grouped
from mtmc.task import Task


class ForwardPrinter:
    """Writes forward's body stage by stage. cuda_graph: whether a CUDA graph of it is replayed. left: how what the reference
    changes is left behind. packing: whether the first stages are those of the method that packs, until `end_packing`.
    turned_once: see `lying.turned_once`. joins: calls of which kernels write operands, see `joins`. made_rounded: what
    kernels make that is rounded to TF32."""

    def __init__(
        self,
        task: Task,
        graph: Graph,
        cuda_graph: bool = False,
        left: WriteBack | None = None,
        packing: bool = False,
        turned_once: Collection[str] = (),
        joins: Mapping[str, Join] | None = None,
        made_rounded: Collection[str] = (),
    ) -> None:
        self.task, self.graph, self._left = task, graph, left or WriteBack()
        self.joins = joins or {}
        self._made_rounded = made_rounded
        signature, names = forward_signature(task.source)
        expressions, self.attributes = _reach(task, graph)
        self.expressions = dict(expressions)
        arguments = input_expressions(task, graph)
        self.cuda_graph = GraphedForward(task, graph, signature, arguments) if cuda_graph else None
        self.packs = PackedForward(task) if packing else None
        self._packing, self._asked = packing, list[str]()
        packed = self.packs.packed if self.packs else ""
        self._head = self.cuda_graph.launching_head(packed) if self.cuda_graph else f"def forward({signature}):"
        self.lines: list[tuple[Stage | None, str]] = [
            (None, INDENT + (self.packs.head() if self.packs else self._head))
        ]
        self.taken = set(names) | {"self", packed}
        self.lying = Lying(graph)
        self.copies = Copies(self._new, self._line, turned_once)

    def scope(self, likely: tuple[str, ...] = (), among: Sequence[str] | None = None) -> Scope:
        """Everything in reach: the likely values first, then inputs, parameters, then numbers on the module. among: which
        of the values that are not likely, where some are enough."""
        names = dict.fromkeys((*likely, *(among or (*self.graph.inputs, *self.expressions))))
        if self._packing:
            names = dict.fromkeys(name for name in names if name not in self.graph.inputs)
        tensors = [
            (self.expressions[name], self.graph.values[name])
            for name in names
            if name in self.expressions and name in self.graph.values
        ]
        return Scope(tuple(tensors), self.attributes, None if self._packing else self._exact)

    def _exact(self, values: tuple[float, ...]) -> str | None:
        """A number as the symbolic export has it, None where that says nothing."""
        text = exact_numbers(self.task).get(values)
        if text is None:
            return None
        for value in self.graph.inputs:
            text = re.sub(rf"\b{re.escape(value)}\.shape", f"{self.expressions[value]}.shape", text)
        return text

    def name(self, value: str) -> str:
        """A variable for a value."""
        self.expressions[value] = self._new(value)
        return self.expressions[value]

    def _new(self, name: str) -> str:
        while name in self.taken or keyword.iskeyword(name):
            name += "_"
        self.taken.add(name)
        return name

    def torch_call(self, stage: Stage) -> None:
        """Have torch do the op of a stage. Raises: CoderError for a number that cannot be expressed."""
        op = self.graph.by_name[stage.ops[0]]
        expressions = self._channels_last(op) if is_channels_last(stage) else self.expressions
        changed = self._left.in_place.get(op.name, ())
        try:
            if op.name in self.joins:
                for line in left_lines(self.graph, self.joins[op.name], self.scope(op.refs()), self._as_joined(op)):
                    self._add(stage, line)
                return
            self.lying.called(op)
            text = call_text(op, expressions, self.scope(tuple(op.refs())), self.graph, changed)
        except NoExpression as error:
            raise CoderError(
                f"op {op.target} (line {op.line} of the reference) takes a number that the rewriter cannot express for "
                f"other shapes: {error}"
            ) from error
        self.expressions |= {op.outputs[made]: self.expressions[value] for _, made, value in changed}
        if changed and op.target != NORM:
            if op.name not in {name for name, _, _ in self._left.raised}:
                self._add(stage, text)
            return
        if changed or gives_one(op, self.graph.used):
            target = self.name(op.outputs[0])
        else:
            target = ", ".join(self.name(value) if value in self.graph.used else "_" for value in op.outputs)
        self._add(stage, f"{target} = {text}")

    def _as_joined(self, op: Op) -> dict[str, str]:
        """The expressions for a call whose result lies channels last by kernels: copies that lie so already are copied into
        it as they lie."""
        kept = {value: self.copies.kept(value) for value in op.refs()} if self.joins[op.name].last else {}
        return {**self.expressions, **{value: text for value, text in kept.items() if text is not None}}

    def _channels_last(self, op: Op) -> dict[str, str]:
        """The expressions for a convolution, whose operand and weight are given channels last."""
        memory = FORMATS[len(self.graph.values[op.outputs[0]].shape)]
        operand, weight = list(op.refs())[:2]
        permuted = {
            weight: self.copies.kept(weight) or f"{self.expressions[weight]}.contiguous(memory_format={memory})"
        }
        if operand not in self.lying.channels_last:
            text = self.expressions[operand]
            permuted[operand] = self.copies.turned(operand, text) or self.copies.turning(text)
        self.lying.channels_last |= set(op.outputs)
        return {**self.expressions, **permuted}

    def _given(self, value: str, printed: Printed) -> str:
        """A value as a launcher is given it."""
        last, rounded = value in printed.last or value in printed.filters, value in printed.rounded
        kept = self.copies.kept(value, last, rounded) if rounded or value in printed.filters else None
        if kept is not None:
            return kept
        text = self.expressions[value]
        if rounded and value not in self._made_rounded:
            return self.copies.rounded(value, self.lying.given(value, text, printed), last)
        turned = value in printed.last and value not in self.lying.channels_last
        copy = self.copies.turned(value, text) if turned else None
        if copy is not None:
            return copy
        given = self.lying.given(value, text, printed)
        several = len(self.graph.readers(value)) > 1
        return self.copies.in_order(value, given) if several and given == f"{text}.contiguous()" else given

    def launch(self, stage: Stage, printed: Printed) -> None:
        """Launch the kernel of a stage. Raises: CoderError for a number that cannot be expressed."""
        scope = self.scope(printed.tensors)
        arguments = [self._given(value, printed) for value in printed.tensors]
        self.lying.launched(printed)
        try:
            arguments += [self._part(value, arguments[0]) for value in printed.given]
            arguments += [scope.number(number) for _, number in printed.numbers]
        except NoExpression as error:
            raise CoderError(f"stage {stage.name} needs a number that cannot be expressed: {error}") from error
        target = ", ".join(self.name(value) for value in printed.results)
        self._add(stage, f"{target} = {printed.launcher}({', '.join(arguments)})")

    def _part(self, value: str, like: str) -> str:
        """The part of a larger tensor that a kernel writes, made with all of it. like: a tensor on the same device."""
        join = next(each for each in self.joins.values() if value in each.written)
        scope, whole = self.scope(), join.op.outputs[0]
        if whole not in self.expressions:
            text = memory_text(self.graph, join, scope, like)
            self._line(f"{self.name(whole)} = {text}")
            self.lying.channels_last |= {whole} if join.last else set()
        return part_text(self.graph, join, join.operands.index(value), scope, self.expressions[whole])

    def _add(self, stage: Stage, text: str) -> None:
        self.lines += [(stage, part) for part in folded(INDENT * 2 + text)]

    def end_packing(self, stages: Sequence[Stage], filters: Mapping[str, Copy]) -> None:
        """End the method that packs, and begin forward's; done once. stages: those that were packed. filters: see
        `kept_filters`."""
        if not self._packing or self.packs is None:
            return
        ops = [self.graph.by_name[name] for stage in stages for name in stage.ops]
        self.copies.forget()  # what was made of weights alone, in the method that packs
        ranks = {each: len(self.graph.values[each.value].shape) for each in filters.values()}
        texts = [
            self.copies.keep(each, self.expressions[each.value], FORMATS.get(rank, "")) for each, rank in ranks.items()
        ]
        names = {op.name for op in ops}
        for output in [output for op in ops for output in op.outputs if output in self.expressions]:
            given = {name for name, copy in filters.items() if copy.value == output}  # read the copy in its place
            if set(self.graph.readers(output)) - names - given:
                texts.append(self.expressions[output])
            else:
                del self.expressions[output]
        held = {ref for op in ops for ref in op.refs()} | {each.value for each in filters.values()}
        self._asked = self.packs.asked([self.expressions[value] for value in self.graph.parameters if value in held])
        self._packing = False
        taken = ", ".join(texts) if len(texts) > 1 else f"({texts[0]},)"
        self._line(f"return {taken}")
        self.lines += [(None, ""), (None, INDENT + self._head)]
        for line in self._asked if self.cuda_graph is None else ():
            self._line(line)
        self._line(f"{taken} = {self.packs.packed}")

    def finish(self) -> None:
        """Leave behind what the reference does, and return its results."""
        self._write_back()
        self.lines.append((None, f"{INDENT * 2}return {self._result(self.graph.output)}"))
        if self.cuda_graph is None:
            return
        body = "\n".join(line for _, line in self.lines)
        self.cuda_graph.turn([value for value in self.graph.inputs if self.copies.kept(value)], body)
        targets = [each.target for each in self.graph.mutations if each.target in self.graph.parameters]
        held = {value: self._looked_up(value) for value in self.graph.parameters}
        read = [text for value, text in held.items() if self.graph.readers(value) or value in targets]
        read += [text for text in self.attributes if text in body]
        packed = self.packs.packed if self.packs else ""
        forward = self.cuda_graph.forward(read, [held[value] for value in targets], packed, self._asked)
        self.lines += [(None, INDENT + line if line else line) for line in ["", *forward]]

    def _looked_up(self, value: str) -> str:
        """A tensor of the module; its own ones without the detour of torch.nn.Module.__getattr__, for each call asks all."""
        path = self.graph.parameters[value]
        where = self.graph.registered.get(value)
        return f'self.{where}["{path}"]' if where else attribute_text(path)

    def _write_back(self) -> None:
        """Leave behind what is not there yet. What lies in a changed tensor and is needed as it is, is copied before."""
        places = {target: self.expressions[target] for target, _, _ in self._left.copied}
        for value in sorted(self._left.cloned, key=list(self.graph.values).index):
            text = self.expressions[value]
            self._line(f"{self.name(f'{value}_kept')} = {text}.clone()")
            self.expressions[value] = self.expressions[f"{value}_kept"]
        copies, rebound = [], []
        for target, value, is_other in self._left.copied:
            texts = places[target], self.expressions[value]
            if is_other:
                rebound.append(f"{texts[0]} = {texts[1]}")
            else:
                copies.append((*texts, self.graph.values[target].dtype))
        sums = [
            (self.expressions[op_target], self.graph.values[op_target].dtype, number)
            for _, op_target, number in self._left.raised
        ]
        kept = (pair for pairs in self._left.placed.values() for pair in pairs)
        placed = [(self.expressions[value], self.expressions[target]) for value, target in kept]
        for value, target in placed:
            self._line(f"if {value} is not {target}:  # which had gaps in memory")
            self._line(f"    {target}.copy_({value})")
        if placed:  # whoever keeps what was made of them (`pack`, autograd) sees by the version that they have changed
            self._line(f"torch.autograd.graph.increment_version([{', '.join(target for _, target in placed)}])")
        for text in (*grouped(copies), *counted(sums), *rebound):
            self._line(text)

    def _line(self, text: str) -> None:
        self.lines += [(None, part) for part in folded(INDENT * 2 + text)]

    def _result(self, item: Any) -> str:
        if isinstance(item, (Ref, Current)):
            return self.expressions[item.name]
        if isinstance(item, tuple):
            return f"({', '.join(self._result(part) for part in item)}{',' if len(item) == 1 else ''})"
        if isinstance(item, list):
            return f"[{', '.join(self._result(part) for part in item)}]"
        if isinstance(item, dict):
            return "{" + ", ".join(f"{key!r}: {self._result(part)}" for key, part in item.items()) + "}"
        return repr(item)


@lru_cache(maxsize=4096)
def forward_scope(task: Task, graph: Graph, tensors: tuple[str, ...] = ()) -> Scope:
    """What numbers may be expressed by where a kernel is launched.

    tensors: values that the kernel takes, which are at hand there. Besides them there are forward's arguments, parameters,
    and numbers on the module. Raises: CoderError where forward takes a structure that cannot be written.
    """
    printer = ForwardPrinter(task, graph)
    printer.expressions |= {value: value for value in tensors if value not in printer.expressions}
    return printer.scope(tensors, _firsts_in_reach(task, graph))


@lru_cache(maxsize=64)
def _firsts_in_reach(task: Task, graph: Graph) -> tuple[str, ...]:
    """The first one of each shape among what is in reach of any stage: the others give no number that it does not give."""
    first = dict[Any, str]()
    for name in (*graph.inputs, *_reach(task, graph)[0]):
        if name in graph.values:
            first.setdefault(graph.values[name].shape, name)
    return tuple(first.values())


def attribute_text(path: str) -> str:
    """`self.layers[0].weight` for the path "layers.0.weight"."""
    text = "self"
    for part in path.split("."):
        if part.isdigit():
            text += f"[{part}]"
        elif part.isidentifier() and not keyword.iskeyword(part):
            text += f".{part}"
        else:
            text = f"getattr({text}, {part!r})"
    return text


@lru_cache(maxsize=64)
def _reach(task: Task, graph: Graph) -> tuple[Mapping[str, str], Mapping[str, tuple[float, ...]]]:
    """How forward's text names its arguments and the parameters, by value; and the numbers on the module, by their text.

    Raises: CoderError, see `input_expressions`.
    """
    parameters = {value: attribute_text(path) for value, path in graph.parameters.items()}
    attributes = {attribute_text(path): values for path, values in graph.attributes.items()}
    return input_expressions(task, graph) | parameters, attributes


def input_expressions(task: Task, graph: Graph) -> dict[str, str]:
    """What forward calls each of the graph's inputs.

    Raises: CoderError where an argument is a structure that is not a flat list.
    """
    _, names = forward_signature(task.source)
    if len(names) >= len(graph.inputs) and all(graph.argument_of[value] in names for value in graph.inputs):
        return {value: graph.argument_of[value] for value in graph.inputs}
    found = {}
    for value in graph.inputs:
        argument = graph.argument_of[value]
        base, _, index = argument.rpartition("_")
        if argument in names:
            found[value] = argument
        elif base in names and index.isdigit():
            found[value] = f"{base}[{index}]"
        else:
            raise CoderError(f"forward's argument {argument!r} is a structure; pass tensors or flat lists of tensors")
    return found

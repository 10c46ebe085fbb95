"""An exported program as a file in KernelBench's format: `Model` without arguments, and inputs like the example's.

The printed `__init__` makes the parameters and buffers that the graph uses, under flat names (`mtmc.task.live_names`),
with values of no meaning: the real ones come from a state dict. The printed `forward` is the graph, one call a line, in
the spelling a PyTorch user knows where there is one. It names no device: what makes a tensor makes it where the first
input is.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from mtmc.errors import TaskError
from mtmc.task.live_attention import ATTENTION, mask_for_gpus
from mtmc.task.live_examples import print_inputs
from mtmc.task.live_graph import graph_module, is_looked_up, is_written, needed_nodes
from mtmc.task.live_names import argument_names, flat_names, free_name, refused_names
from mtmc.task.live_sizes import conditions
from mtmc.task.live_spelling import FUNCTIONS, SYMBOLS, initial_tensor, spell

PREFIX = "module."
"""Of the names that the exported program has for the live module's tensors."""
_INDENT = "        "
_DEFAULTS = {"pin_memory": (False, None), "layout": (torch.strided, None)}
_SAME = ("aten.dropout.default", "aten.detach_.default", "aten.detach.default", "aten.alias.default")
"""Calls that give what they take: no gradient is wanted, and a dropout that does something was refused before."""
_VIEWS = ("aten.view.default", "aten._unsafe_view.default")
_OF_TORCH = ("aten", "prims")
_GRAD_MODE = "wrap_with_set_grad_enabled"


@dataclass(frozen=True)
class PrintedModule:
    """A module as text.

    tensors: of the printed `Model`, by attribute. targets: the exported program's name of each.
    """

    source: str
    tensors: Mapping[str, torch.Tensor]
    targets: Mapping[str, str]


def print_module(
    program: ExportedProgram, examples: Sequence[torch.Tensor], input_names: Sequence[str], title: str, name: str
) -> PrintedModule:
    """The text of a task's file.

    program: an export whose inputs are a flat list of tensors. examples: such a list. input_names: what to call them.
    title: of the module, for the file's first line. name: of the task, for errors.
    Raises: TaskError naming the op that cannot be printed.
    """
    return _Printer(program, examples, input_names, name).printed(title)


class _Printer:
    """Visits the nodes of one graph and collects the lines of forward."""

    def __init__(
        self, program: ExportedProgram, examples: Sequence[torch.Tensor], input_names: Sequence[str], name: str
    ) -> None:
        self.program = program
        self.examples = examples
        self.name = name
        self.inputs = argument_names(input_names)
        self.tensors: dict[str, torch.Tensor] = {}
        self.targets: dict[str, str] = {}
        self.parameters: set[str] = set()
        self.texts: dict[torch.fx.Node, str] = {}
        self.variables = {*refused_names(), *self.inputs}
        self.lines: list[str] = []
        self.inlined: dict[torch.fx.Node, list[str]] = {}
        self.region = ""
        self.shapes: list[Sequence[Any]] = []
        self.rows: set[str] = set()
        self.sizes: dict[str, str] = {}
        """Symbol of an open dimension -> the module-level constant that stands for it."""
        self.size_values: dict[str, int] = {}

    def printed(self, title: str) -> PrintedModule:
        shapes = self._placeholders()
        returned = self._body(self.program.graph)
        result = ", ".join(returned)
        inputs = print_inputs(self.inputs, self.examples, shapes, self.size_values, self.name, self.rows)
        asserts = conditions(self.program, self.inputs, self.shapes, self.name)
        body = [*(f"{_INDENT}assert {each}" for each in asserts), *self.lines, f"{_INDENT}return {result}"]
        lines = [
            f'"""{title}, as torch.export sees it. The weights that count are loaded after construction."""',
            "",
            *(["import math", ""] if any("math." in line for line in (*body, *inputs)) else []),
            "import torch",
            "",
            *[f"{size} = {value}{self._range(size)}" for size, value in self.size_values.items()],
            *([""] if self.size_values else []),
            "",
            "class Model(torch.nn.Module):",
            "    def __init__(self):",
            f"{_INDENT}super().__init__()",
            *self._constructor(),
            "",
            f"    def forward(self, {', '.join(self.inputs)}):",
            *body,
            "",
            "",
            "def get_inputs():",
            *inputs,
            "",
            "",
            "def get_init_inputs():",
            "    return []",
        ]
        return PrintedModule("\n".join(lines) + "\n", self.tensors, self.targets)

    def _placeholders(self) -> list[list[str]]:
        """Name what the graph takes: its tensors and inputs. Returns the printed shape of each input."""
        nodes = {node.name: node for node in self.program.graph.nodes if node.op == "placeholder"}
        shapes: list[list[str]] = []
        stored = [spec for spec in self.program.graph_signature.input_specs if spec.kind != InputKind.USER_INPUT]
        attributes = flat_names(str(spec.target).removeprefix(PREFIX) for spec in stored if nodes[spec.arg.name].users)
        for spec in self.program.graph_signature.input_specs:
            node = nodes[spec.arg.name]
            if spec.kind == InputKind.USER_INPUT:
                index = len(shapes)
                self.texts[node] = self.inputs[index]
                self.rows |= {self.inputs[index]} if is_looked_up(node) else set()
                shape = node.meta["val"].shape
                self.shapes.append(shape)
                shapes.append([self._size(size, self.examples[index].shape[d]) for d, size in enumerate(shape)])
            elif node.users:
                target = str(spec.target)
                tensor = self.program.state_dict.get(target, self.program.constants.get(target))
                if not isinstance(tensor, torch.Tensor):
                    raise TaskError(f"module {self.name} uses {target!r}, which is no tensor: make it a buffer")
                attribute = attributes[target.removeprefix(PREFIX)]
                self.tensors[attribute], self.targets[attribute] = tensor, target
                if spec.kind == InputKind.PARAMETER:
                    self.parameters.add(attribute)
                self.texts[node] = f"self.{attribute}"
        return shapes

    def _size(self, size: int | torch.SymInt, example: int) -> str:
        """A dimension of an input: a number, or arithmetic of module-level constants."""
        if isinstance(size, int):
            return str(size)
        for symbol in re.findall(r"[A-Za-z]+\d+", str(size)):
            if symbol not in self.sizes:
                if str(size) != symbol:  # The symbol's own value is not known: keep this dimension as it is.
                    return str(example)
                self.sizes[symbol] = free_name(f"size{len(self.sizes)}", self.variables)
                self.variables.add(self.sizes[symbol])
                self.size_values[self.sizes[symbol]] = example
        return re.sub(r"[A-Za-z]+\d+", lambda match: self.sizes[match.group()], str(size))

    def _range(self, size: str) -> str:
        """A comment on the sizes that torch.export allows, where it is not all from 2 on."""
        for symbol, allowed in self.program.range_constraints.items():
            if self.sizes.get(str(symbol)) == size:
                upper = f", at most {allowed.upper}" if "oo" not in str(allowed.upper) else ""
                lower = f"at least {allowed.lower}" if str(allowed.lower) not in "012" else ""
                return f"  # {lower}{upper}".replace("# , ", "# ") if lower or upper else ""
        return ""

    def _constructor(self) -> list[str]:
        lines = []
        for attribute, tensor in self.tensors.items():
            values = initial_tensor(tensor)
            if attribute in self.parameters:
                trainable = "" if tensor.is_floating_point() else ", requires_grad=False"
                lines.append(f"{_INDENT}self.{attribute} = torch.nn.Parameter({values}{trainable})")
            else:
                lines.append(f'{_INDENT}self.register_buffer("{attribute}", {values})')
        return lines

    def _body(self, graph: torch.fx.Graph) -> list[str]:
        """Print the calls of a graph whose placeholders have their texts; returns the texts of what it returns."""
        live = needed_nodes(graph)
        for node in graph.nodes:
            if node.op == "call_function" and node in live:
                self._call(node)
            elif node.op == "call_module" or (node.op == "get_attr" and node in live and graph_module(node) is None):
                raise self._unprintable(node, node.target)
        output = next(node for node in graph.nodes if node.op == "output")
        items = list(output.args[0])
        if graph is self.program.graph:
            items = items[self._write_back(items) :]
        return [self._value(item, node=output) for item in items if item is not None]

    def _write_back(self, items: Sequence[Any]) -> int:
        """Print what a functional graph gives besides its results: new values of inputs and buffers. Returns how many."""
        specs = [each for each in self.program.graph_signature.output_specs if each.kind != OutputKind.USER_OUTPUT]
        by_target = {str(spec.target): spec.arg.name for spec in self.program.graph_signature.input_specs}
        nodes = {node.name: node for node in self.program.graph.nodes if node.op == "placeholder"}
        writes = []
        for spec, item in zip(specs, items, strict=False):
            target = nodes[by_target.get(str(spec.target), str(spec.target))]
            new = self._value(item, item)
            if not new.isidentifier():  # another tensor's own memory, which may be written before it is read
                new = f"{new}.clone()"
            writes.append(f"{_INDENT}{self.texts[target]}.copy_({new})")
        self.lines += writes
        return len(specs)

    def _call(self, node: torch.fx.Node) -> None:
        if isinstance(node.target, torch._ops.HigherOrderOperator) and str(node.target) != _GRAD_MODE:
            raise self._unprintable(node, node.target)
        if str(node.target) == _GRAD_MODE:
            self._inline(node)
            return
        if node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node) and node.args[0] in self.inlined:
            self.texts[node] = self.inlined[node.args[0]][int(node.args[1])]  # type: ignore[arg-type]
            return
        if str(node.target) in _SAME:
            self.texts[node] = self._value(node.args[0], node)
            return
        self._comment(node)
        variable = free_name(node.name, self.variables)
        self.variables.add(variable)
        self.lines.append(f"{_INDENT}{variable} = {self._expression(node)}")
        self.texts[node] = variable

    def _expression(self, node: torch.fx.Node) -> str:
        args = [self._value(item, node) for item in node.args]
        kwargs = {
            key: self._value(value, node)
            for key, value in node.kwargs.items()
            if not (key in _DEFAULTS and value in _DEFAULTS[key])
        }
        if node.target is operator.getitem:
            return f"{args[0]}[{args[1]}]"
        if node.target is operator.neg:
            return f"-{args[0]}"
        if node.target in SYMBOLS:
            return f"{args[0]} {SYMBOLS[node.target]} {args[1]}"
        if node.target in FUNCTIONS:
            return f"{FUNCTIONS[node.target]}({', '.join(args)})"
        if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace not in _OF_TORCH:
            raise self._unprintable(node, node.target)
        if str(node.target) == ATTENTION:
            args = mask_for_gpus(node, args)
        # Strides hang on the library that made a tensor, and so on the device; only where a view is written it must be one.
        again = str(node.target) in _VIEWS and not is_written(node)
        return spell("aten.reshape.default" if again else str(node.target), args, kwargs)

    def _inline(self, node: torch.fx.Node) -> None:
        """A part of forward under torch.no_grad(): as nothing here is differentiated, it is printed as it stands."""
        _, submodule, *operands = node.args
        assert isinstance(submodule, torch.fx.Node)
        inner_module = graph_module(submodule)
        assert inner_module is not None
        graph = inner_module.graph
        placeholders = [inner for inner in graph.nodes if inner.op == "placeholder"]
        for inner, operand in zip(placeholders, operands, strict=True):
            self.texts[inner] = self._value(operand, node)
        self.inlined[node] = self._body(graph)

    def _comment(self, node: torch.fx.Node) -> None:
        """Say in which submodule of the original the next lines are, where that changes."""
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        region = str(stack[-1][0]).removeprefix(PREFIX) if stack else ""
        region = "" if region == "module" or region.startswith("_") else region
        if region != self.region and region:
            self.lines.append(f"{_INDENT}# {region}")
        self.region = region

    def _value(self, item: Any, node: torch.fx.Node) -> str:
        """An argument as text."""
        if isinstance(item, torch.fx.Node):
            if item not in self.texts:
                raise self._unprintable(item, item.target)
            return self.texts[item]
        if isinstance(item, list | tuple):
            return f"[{', '.join(self._value(part, node) for part in item)}]"
        if isinstance(item, torch.device):
            return f"{self.inputs[0]}.device"
        if isinstance(item, torch.dtype | torch.memory_format | torch.layout):
            return str(item)
        if isinstance(item, float) and not math.isfinite(item):
            return f'float("{item}")'
        if item is None or isinstance(item, bool | int | float | str):
            return repr(item)
        raise self._unprintable(node, f"{node.target} with the argument {item!r}")

    def _unprintable(self, node: torch.fx.Node, what: object) -> TaskError:
        lines = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
        where = f" (line {lines[-1][1]} of {lines[-1][0].rsplit('/', 1)[-1]})" if lines else ""
        if isinstance(what, torch._ops.OpOverload) and what.namespace not in _OF_TORCH:
            return TaskError(
                f"module {self.name} uses {what}{where}, an operator of the library {what.namespace!r} that says nothing of "
                "what it computes: have that library run torch's own operators there, or hand over the submodules "
                "around it (whole=True does)"
            )
        return TaskError(
            f"module {self.name} uses {what}{where}, which cannot be printed as a plain ATen call: take it out of "
            "forward, or give the task as a file"
        )

"""launcher: prints the function that launches a kernel, and a stage as its kernels with this function behind them.

Every kernel template prints the same way: a `@triton.jit` function (`writer`) and a launcher beside it that takes tensors,
works out sizes and grid, allocates the outputs and returns them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtmc.rewrite.body import Body, NotCovered, less_own_maximum
from mtmc.rewrite.folding import INDENT, folded, wrapped
from mtmc.rewrite.graph import Graph, Size, Varying
from mtmc.rewrite.sizes import NoExpression, Scope
from mtmc.rewrite.templates.divisors import FULL
from mtmc.rewrite.templates.writer import Writer


@dataclass(frozen=True)
class Printed:
    """A stage as text.

    text: the kernel functions and the launcher. launcher: its name. tensors: values it takes, in order.
    numbers: (parameter, value at every variant) that it takes besides, because no tensor at hand gives them.
    results: the values it returns, in order. last: those of tensors and results that lie channels last. as_laid: results
    that lie in memory as the reference's do, in another order than that of their dimensions. filters: weights of which the
    launcher makes a copy with their channels last, unless they lie so. rounded: tensors that it is to be given rounded to
    TF32. given: results whose memory it takes behind the tensors.
    """

    text: str
    launcher: str
    tensors: tuple[str, ...]
    numbers: tuple[tuple[str, Varying], ...]
    results: tuple[str, ...]
    last: tuple[str, ...] = ()
    as_laid: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    rounded: tuple[str, ...] = ()
    given: tuple[str, ...] = ()


OPTIONS = ("maxnreg",)
"""Settings that go to the compiler as they are, 0 for none: most registers of a thread."""


@dataclass(frozen=True)
class Launch:
    """How the launcher starts one kernel: its grid as a list of expressions, compile-time arguments, warps and stages.

    instead: inputs for which the kernel gets something else that the launcher has made of them. options: further ones of
    the compiler.
    """

    kernel: str
    writer: Writer
    outputs: tuple[str, ...]
    extra: tuple[str, ...]
    grid: tuple[str, ...]
    constants: tuple[tuple[str, str], ...]
    num_warps: int | str
    num_stages: int | str | None = None
    instead: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, int], ...] = ()


def launch_lines(launch: Launch, scope: Scope, spare: dict[str, Varying]) -> list[str]:
    """The launcher's lines that start a kernel. spare: gets the numbers that no tensor at hand gives."""
    writer = launch.writer
    arguments = [dict(launch.instead).get(value, value) for value in writer.inputs]
    arguments += [*launch.outputs, *launch.extra]
    sizes = {name: size_expression(size, name, scope, spare) for size, name in writer.sizes.items()}
    arguments += sizes.values()
    arguments += [_stride(writer, value, axis) for value, axis in writer.strides]
    for number, name in writer.numbers.items():
        try:
            arguments.append(scope.number(number))
        except NoExpression:
            spare[name] = number
            arguments.append(name)
    arguments += writer.given.values()
    divisors = writer.divisors()
    if divisors.full:
        arguments.append(f"{FULL}={divisors.condition({**sizes, **writer.given})}")
    arguments += [f"{name}={value}" for name, value in launch.constants]
    arguments.append(f"num_warps={launch.num_warps}")
    if launch.num_stages is not None:
        arguments.append(f"num_stages={launch.num_stages}")
    if less_own_maximum(writer.body):
        arguments.append("enable_fp_fusion=False")
    arguments += [f"{name}={value}" for name, value in launch.options]
    grid = ", ".join(launch.grid) + ("," if len(launch.grid) == 1 else "")
    *before, start = folded(f"{INDENT}{launch.kernel}[({grid})]")
    return [*before, *wrapped(f"{start}(", arguments, ")")]


def size_expression(size: Size, name: str, scope: Scope, spare: dict[str, Varying]) -> str:
    """A size in the launcher; where no tensor at hand gives it, it becomes a parameter of the launcher."""
    try:
        return scope.size(size)
    except NoExpression:
        spare.setdefault(name, Varying(size))
        return name


def scope_of(graph: Graph, body: Body) -> Scope:
    """What a launcher can express sizes by: the tensors it takes."""
    return Scope(tuple((value, graph.values[value]) for value in body.loads))


def scope_with_results(graph: Graph, body: Body) -> Scope:
    """What a launcher can express sizes by once it has allocated its results."""
    return Scope(tuple((value, graph.values[value]) for value in (*body.loads, *body.stores)))


def allocation(
    graph: Graph, body: Body, value: str, scope: Scope, spare: dict[str, Varying], memory_format: str | None = None
) -> str:
    """The launcher's line that allocates an output. memory_format: how it lies; None: channels first.

    Raises: NotCovered where no tensor is read that tells the device.
    """
    if not body.loads:
        raise NotCovered(f"{value} is computed from no tensor")
    if body.part(value) is not None:
        return f"{INDENT}# {value} is a part of a tensor that is there already"
    tensor, place = graph.values[value], dict(graph.placed).get(value)
    if place is not None:
        return f"{INDENT}{value} = {place}  # which is changed where it lies"
    for load in () if memory_format else body.loads:
        other = graph.values[load]
        if other.shape == tensor.shape and other.contiguous and other.dtype == tensor.dtype:
            return f"{INDENT}{value} = torch.empty_like({load})"
    parts = [size_expression(size, f"{value}_size_{axis}", scope, spare) for axis, size in enumerate(tensor.shape)]
    shape = f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
    like = body.loads[0]
    same_dtype = tensor.dtype == graph.values[like].dtype
    dtype = f"{like}.dtype" if same_dtype else f"torch.{tensor.dtype}"
    lies = f", memory_format={memory_format}" if memory_format else ""
    return f"{INDENT}{value} = torch.empty({shape}, device={like}.device, dtype={dtype}{lies})"


def printed(
    body: Body,
    name: str,
    kernels: Sequence[str],
    lines: Sequence[str],
    spare: dict[str, Varying],
    last: tuple[str, ...] = (),
) -> Printed:
    """A stage from its kernels and the lines of its launcher up to the last launch. last: what lies channels last."""
    given = tuple(part.value for part in body.parts)
    head = f"def launch_{name}({', '.join((*body.loads, *given, *spare))}):"
    end = f"{INDENT}return {', '.join(body.stores)}"
    launcher = "\n".join([head, f'{INDENT}"""Launch {name}_kernel."""', *lines, end])
    text = "\n\n\n".join([*kernels, launcher])
    return Printed(text, f"launch_{name}", body.loads, tuple(spare.items()), body.stores, last, given=given)


def _stride(writer: Writer, value: str, axis: int) -> str:
    """A tensor's stride along an axis. Where that may have one element and torch made the tensor, any number is right, and
    devices differ in it: 0 then, or the same kernel would be compiled for one and not be found on the other."""
    tensor = writer.graph.values[value]
    settled = tensor.contiguous or value not in writer.graph.producer or 1 not in tensor.shape[axis]
    settled = settled or writer.body.part(value) is not None
    return f"{value}.stride({axis})" + ("" if settled else f" * ({value}.shape[{axis}] > 1)")


def contiguous_lines(writer: Writer) -> list[str]:
    """Lines that make sure of what the kernel's flat offsets rely on; they copy nothing where it holds already."""
    relied = [value for value in writer.body.loads if value in writer.contiguous]
    graph = writer.graph
    doubtful = [value for value in relied if value in graph.inputs or not graph.values[value].contiguous]
    return [f"{INDENT}{value} = {value}.contiguous()" for value in doubtful]

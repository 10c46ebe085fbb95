"""cuda_graph: the text of a forward whose launches are replayed as one CUDA graph.

The launches stand in a method of their own; forward replays a graph of them where it can and calls the method where it
cannot: on a CPU, with gradients, under autocast, and while somebody else captures.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mtmc.errors import CoderError
from mtmc.rewrite.folding import INDENT
from mtmc.rewrite.graph import Graph, Ref
from mtmc.rewrite.templates.channels_copy import LAUNCHER
from mtmc.task import Task

_HELPER = '''\
class Graphs:
    """CUDA graphs of all launches of a forward, one for each form of its inputs.

    A graph reads copies of the inputs, and what it writes is copied again, so that no call touches another one's result.
    It reads the module's tensors where they lie: what changes in place is seen, and where one of them has been replaced
    by another tensor, all graphs are made anew.
    """

    MOST = 8  # forms of inputs that have a graph; those after them are launched kernel by kernel

    def __init__(self):
        self.held, self.graphs = None, {}

    def __reduce__(self):
        return Graphs, ()  # the copy of a module makes its own

    @staticmethod
    def fit(*inputs):
        """Whether a graph may stand for the launches: on one GPU, without gradients, not inside of another graph."""
        if not all(x.is_cuda and x.device == inputs[0].device for x in inputs):
            return False
        traced = torch.is_grad_enabled() or torch.is_autocast_enabled("cuda")
        return not traced and not torch.cuda.is_current_stream_capturing()

    def replay(self, launches, inputs, held):
        """What `launches(*inputs)` returns. held: the tensors and numbers of the module that it reads."""
        held = self.tied(held)
        if held != self.held:
            self.held, self.graphs = held, {}
        modes = (torch.is_inference_mode_enabled(), torch.are_deterministic_algorithms_enabled())
        form = (torch.cuda.current_stream().cuda_stream, *modes, *map(layout, inputs))
        if form not in self.graphs:
            if len(self.graphs) == self.MOST:
                return launches(*inputs)
            self.graphs[form] = self.capture(launches, inputs)
        graph, own, results = self.graphs[form]
        for mine, given in zip(own, inputs):
            mine.copy_(given)
        graph.replay()
        return COPIED

    @staticmethod
    def tied(held):
        """What graphs are tied to of the module: where its tensors lie and how, and its numbers."""
        tensors = [x for x in held if isinstance(x, torch.Tensor)]
        places, sizes = list(map(torch.Tensor.data_ptr, tensors)), list(map(torch.Tensor.size, tensors))
        strides, kinds = list(map(torch.Tensor.stride, tensors)), [x.dtype for x in tensors]
        return places, sizes, strides, kinds, [x for x in held if not isinstance(x, torch.Tensor)]

    @staticmethod
    def capture(launches, inputs):
        """The graph, the inputs that it reads, and what it writes."""
        own = [x.clone() for x in inputs]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            launches(*own)  # kernels are loaded and the library's handles made before the capture
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # A library's products keep working memory for each stream. What is kept from before may lie among the memory of
        # another graph, and go with it: memory of this graph's own is made, and not left to the next one.
        torch._C._cuda_clearCublasWorkspaces()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            results = launches(*own)
        torch._C._cuda_clearCublasWorkspaces()
        return graph, own, results


def layout(x):
    """What a graph is tied to of a tensor besides its address."""
    return x.shape, x.stride(), x.dtype, x.device
'''

_CHANGING = (
    ("def replay(self, launches, inputs, held):", "def replay(self, launches, inputs, held, changed):"),
    (
        'the module that it reads."""',
        'the module that it reads. changed: of these, what it changes."""',
    ),
    ("self.capture(launches, inputs)", "self.capture(launches, inputs, changed)"),
    ("def capture(launches, inputs):", "def capture(launches, inputs, changed):"),
    (
        "own = [x.clone() for x in inputs]\n",
        "own, kept = [x.clone() for x in inputs], [x.clone() for x in changed]\n",
    ),
    (
        "wait_stream(side)\n        graph =",
        "wait_stream(side)\n        for x, before in zip(changed, kept):\n"
        "            x.copy_(before)  # the launches before the capture count for nothing\n        graph =",
    ),
)
"""What is another text where forward changes what its module keeps, or its inputs."""

_TURNING = (
    (
        "        for mine, given in zip(own, inputs):\n            mine.copy_(given)\n",
        "        for at, (mine, given) in enumerate(zip(own, inputs)):\n"
        "            if at in TURNED:\n"
        "                LAUNCHER(given, permuted=mine)\n"
        "            else:\n"
        "                mine.copy_(given)\n",
    ),
    (
        "        side = torch.cuda.Stream()\n",
        "        for at in TURNED:\n"
        "            own[at] = LAUNCHER(own[at])  # as the launches read it\n"
        "        side = torch.cuda.Stream()\n",
    ),
)
"""What is another text where copies of inputs are put as the launches read them."""

LARGE = 32 << 20
"""Bytes of an input that is worth a kernel's launch on its way: from there on the device has as long to do as the host."""

_FORWARD = """\
def forward(SIGNATURE):
    if not Graphs.fit(INPUTS):
        return self.launches(INPUTS)
    if not hasattr(self, "graphs"):
        self.graphs = Graphs()
    with torch.cuda.device(FIRST.device):
        return self.graphs.replay(self.launches, (INPUTS,), HELD)
"""


class GraphedForward:
    """The parts of the text; names that the reference uses for something else get an underscore."""

    def __init__(self, task: Task, graph: Graph, signature: str, inputs: Mapping[str, str]) -> None:
        """inputs: the expression of each of the graph's inputs. Raises: CoderError where forward cannot be captured."""
        self._signature, self._inputs = signature, list(inputs.values())
        if not fits_cuda_graph(graph, inputs):
            raise CoderError("only a forward of plain tensors that returns one, or a list of them, is captured")
        self._copied = _copied(graph)
        changed = [each.target for each in graph.mutations]
        self._changed_inputs = [at for at, value in enumerate(inputs) if value in changed]
        self._changes = bool(changed)
        self._graph, self._values, self._turned = graph, list(inputs), tuple[int, ...]()
        words = set(re.findall(r"\w+", task.source))
        self._names = {name: _free(name, words) for name in ("Graphs", "launches", "graphs", "layout")}

    @property
    def turns(self) -> bool:
        """Whether the graph's own copy of an input has its channels last."""
        return bool(self._turned)

    def turn(self, values: Sequence[str], launches: str) -> None:
        """Copy inputs so that their channels lie last where the launches read nothing of them but that: one copy instead of
        two. values: inputs that are turned there. launches: the text."""
        self._turned = tuple(
            at
            for at, (value, text) in enumerate(zip(self._values, self._inputs, strict=True))
            if value in values
            and at not in self._changed_inputs
            and self._is_large(value)
            and _is_only_turned(text, launches)
        )

    def _is_large(self, value: str) -> bool:
        tensor = self._graph.values[value]
        return tensor.contiguous and tensor.numel() * tensor.element_bytes >= LARGE

    def launching_head(self, packed: str = "") -> str:
        """Head of the method that launches one kernel after the other. packed: what it is given besides, see `packing`."""
        names = [packed, *self._inputs] if packed else self._inputs
        return self._named(f"def launches(self, {', '.join(names)}):")

    def helper(self) -> list[str]:
        """Lines of the class that keeps graphs."""
        text = _HELPER
        for old, new in _CHANGING if self._changes else ():
            text = text.replace(old, new)
        back = "".join(f"        inputs[{at}].copy_(own[{at}])\n" for at in self._changed_inputs)
        text = text.replace("        graph.replay()\n", f"        graph.replay()\n{back}")
        for old, new in _TURNING if self._turned else ():
            text = text.replace(
                old, new.replace("TURNED", _tuple(list(map(str, self._turned)))).replace("LAUNCHER", LAUNCHER)
            )
        return self._named(text.replace("COPIED", self._copied)).splitlines()

    def forward(
        self, held: Sequence[str], changed: Sequence[str] = (), packed: str = "", asked: Sequence[str] = ()
    ) -> list[str]:
        """Lines of the method `forward`. held: expressions of the module's tensors and numbers that are read, or changed.
        changed: of the module's tensors that forward changes. packed: the variable of what is packed, which a graph reads
        where it lies, and asked: the lines that make it."""
        if packed:
            return self._with_packed(self.forward([*held, f"*{packed}"], changed), packed, asked)
        kept = _tuple(held)
        text = _FORWARD.replace("SIGNATURE", self._signature).replace("FIRST", self._inputs[0])
        single = text.replace("(INPUTS,)", "(INPUTS,)" if len(self._inputs) == 1 else "(INPUTS)")
        lines = self._named(single.replace("INPUTS", ", ".join(self._inputs))).splitlines()
        after = f", {_tuple(changed)}" if self._changes else ""
        last = lines[-1].replace("HELD", kept + after)
        if len(last) <= 112:
            return [*lines[:-1], last]
        before = _assigned("held", held) + (_assigned("changed", changed) if self._changes else [])
        names = "held, changed" if self._changes else "held"
        return [*lines[:-2], *before, lines[-2], lines[-1].replace("HELD", names)]

    def _with_packed(self, lines: list[str], packed: str, asked: Sequence[str]) -> list[str]:
        """The lines of `forward` where the launches are given `packed` before the inputs."""
        launches = f"self.{self._names['launches']}"
        changed = [
            line.replace(f"{launches}(", f"{launches}({packed}, ").replace(
                f"({launches},", f"(lambda *own: {launches}({packed}, *own),"
            )
            for line in lines[1:]
        ]
        return [lines[0], *(f"{INDENT}{line}" for line in asked), *changed]

    def _named(self, text: str) -> str:
        """The text with the names that are free here; attributes of the class itself keep theirs."""
        for name, free in self._names.items():
            if free != name:
                text = re.sub(rf"\b{name}\b", free, text)
        return text


def _is_only_turned(name: str, launches: str) -> bool:
    """Whether the launches take an argument, have its channels put last, and ask for nothing else but its form."""
    text = re.sub(rf"\b{name}\.(shape|device|dtype|numel\(\))", "", launches)
    heads = len(re.findall(rf"def \w+\([^)]*\b{name}\b", text))
    return f"{LAUNCHER}({name})" in text and len(re.findall(rf"\b{name}\b", text)) == heads + 1


def _tuple(items: Sequence[str]) -> str:
    return f"({', '.join(items)}{',' * (len(items) == 1)})"


def _assigned(name: str, items: Sequence[str]) -> list[str]:
    """A tuple, an item a line."""
    return [f"{INDENT}{name} = (", *(f"{INDENT * 2}{text}," for text in items), f"{INDENT})"]


def fits_cuda_graph(graph: Graph, inputs: Mapping[str, str]) -> bool:
    """Whether the text of this module fits a forward. inputs: the expression of each of the graph's inputs."""
    if any(each.rebound for each in graph.mutations):  # another tensor at each call: each would need a graph of its own
        return False
    return bool(inputs) and all(text.isidentifier() for text in inputs.values()) and bool(_copied(graph))


def _copied(graph: Graph) -> str:
    """The expression that copies what a graph has written; "" for results of another form."""
    output = graph.output
    if isinstance(output, Ref):
        return "results.clone()"
    if isinstance(output, (tuple, list)) and output and all(isinstance(part, Ref) for part in output):
        return "[x.clone() for x in results]" if isinstance(output, list) else "tuple(x.clone() for x in results)"
    return ""


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name

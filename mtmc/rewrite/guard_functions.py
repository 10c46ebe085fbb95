"""guard_functions: the two functions that a version with guards has: `why_not` and `admits`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mtmc.rewrite.guards import Guards, TensorGuard, renamed

ADMITS = "admits"
REFUSAL = "this kernel version does not hold: "
_STEP = "    "
_OWN = ("module", "like", "wanting", "several", "numbers", "error", "reason")
"""Variables of `admits`; `reason` is one of forward too."""
_FORMS = '''\
class Forms(list):
    """The forms of tensors that forward has been called with, the latest first.

    Of each: a function that says whether other tensors are like these in type, dtype, device, shape and strides; whether
    one wants a gradient; whether there are several devices; the numbers of the module.
    """

    MOST = 64

    def __reduce__(self):
        return Forms, ()  # the copy of a module begins anew

    def add(self, tensors, numbers):
        wanting = any(tensor.requires_grad for tensor in tensors)
        several = tensors[0].is_cuda and torch.cuda.device_count() > 1
        self[:] = [(self.check(tensors), wanting, several, numbers), *self[: self.MOST - 1]]

    @staticmethod
    def share(one, other):
        both = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
        return both and one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()

    @staticmethod
    def check(tensors):
        try:  # what torch.compile guards its own code with
            from torch._C._dynamo.guards import TensorGuards

            like = TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
            if like(*tensors):
                return like
        except (ImportError, TypeError, RuntimeError):
            pass  # another torch; or one tensor is given twice

        def form(each):
            modes = torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cuda" if each[0].is_cuda else "cpu")
            return modes, [(type(x), x.shape, x.stride(), x.dtype, x.device, x.requires_grad) for x in each]

        known = form(tensors)
        return lambda *others: all(isinstance(x, torch.Tensor) for x in others) and form(others) == known
'''
_KNOWN = """\
if not torch.compiler.is_compiling():
    for like, wanting, several, numbers in module.__dict__.get("_known_forms", ()):
        if like(TENSORS) and numbers == NUMBERS:
            if wanting and torch.is_grad_enabled():
                break
            if several and FIRST.get_device() != torch.cuda.current_device():
                break
            return None
reason = WHY_NOT(ASKED)
if reason is not None:
    return reason
if torch.is_grad_enabled() and (WANTING):
    return "gradients are wanted and its kernels have no backward: call it under torch.no_grad()"
if torch.is_autocast_enabled("cuda" if FIRST.is_cuda else "cpu"):
    return "torch.autocast is on, which this version does not follow"
if FIRST.is_cuda and FIRST.get_device() != torch.cuda.current_device():
    return f"its tensors are on {FIRST.device}, and cuda:{torch.cuda.current_device()} is the current device"
if not torch.compiler.is_compiling():
    module.__dict__.setdefault("_known_forms", Forms()).add((TENSORS,), NUMBERS)
return None
"""


@dataclass(frozen=True)
class Signature:
    """forward's arguments, without the first.

    names: of those that are not collected by a star, and their defaults as text, None where there is none. several: what
    *args is called. positional: how many may be given by position. text: all of it. passed: all of it, to hand it on.
    """

    self_name: str
    names: tuple[str, ...]
    defaults: tuple[str | None, ...]
    several: str | None
    positional: int
    text: str
    passed: str

    def argument(self, place: int) -> str:
        """The expression for one of forward's arguments by its place in a call."""
        if place >= self.positional and self.several is not None:
            return f"{self.several}[{place - self.positional}]"
        return self.names[place]


@dataclass(eq=False)
class Functions:
    """Writes them. words: all words of the version's text."""

    guards: Guards
    signature: Signature
    words: set[str]
    variables: dict[str, str] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.why_not, self.admits, self.forms = (_free(name, self.words) for name in ("why_not", ADMITS, "Forms"))
        self.taken = {"torch", *self.signature.names, self.signature.several or ""}
        self.own = {name: _free(name, self.words if name == "reason" else self.taken) for name in _OWN}
        self.taken |= set(self.own.values())
        self.taken |= {self.why_not, self.admits, self.forms}
        own = [tensor.variable for tensor in self.guards.state] + [number.variable for number in self.guards.numbers]
        self.variables |= {variable: self._name(variable) for variable in own}
        for guard in self.guards.inputs:
            assert guard.argument is not None
            text = self.signature.argument(guard.argument) + ("" if guard.item is None else f"[{guard.item}]")
            self.variables[guard.variable] = text
        self.parameters = {
            guard.variable: self.variables[guard.variable]
            if self.variables[guard.variable].isidentifier()
            else self._name(guard.variable)
            for guard in self.guards.tensors
        } | {number.variable: self.variables[number.variable] for number in self.guards.numbers}

    def _name(self, wanted: str) -> str:
        name = _free(wanted, self.taken)
        self.taken.add(name)
        return name

    def check(self, self_name: str) -> list[str]:
        """What forward begins with."""
        reason = self.own["reason"]
        return [
            f"{reason} = {self.admits}({', '.join(part for part in (self_name, self.signature.passed) if part)})",
            f"if {reason} is not None:",
            f'{_STEP}raise ValueError(f"{REFUSAL}{{{reason}}}")',
        ]

    def wrapper(self) -> list[str]:
        """A forward for a class that inherits it."""
        head = ", ".join(part for part in (self.signature.self_name, self.signature.text) if part)
        return [
            f"def forward({head}):",
            *(_STEP + line for line in self.check(self.signature.self_name)),
            f"{_STEP}return super().forward({self.signature.passed})",
        ]

    def lines(self) -> list[str]:
        """Both functions, and the class that keeps known forms."""
        forms = [*renamed(_FORMS, {"Forms": self.forms}).splitlines(), "", ""] if self.guards.tensors else []
        return [*forms, *self._why_not(), "", "", *self._admits()]

    def _why_not(self) -> list[str]:
        lines = [f"def {self.why_not}({', '.join(self.parameters.values())}):"]
        lines.append(
            f'{_STEP}"""What keeps the kernels from these tensors and numbers; None where they may run on them."""'
        )
        checks = list(self._checks())
        lines += [f"{_STEP}import math"] if any("math." in condition for condition, _ in checks) else []
        for condition, reason in checks:
            lines += [f"{_STEP}if {condition}:", f"{_STEP * 2}return {reason}"]
        return [*lines, f"{_STEP}return None"]

    def _checks(self) -> Iterator[tuple[str, str]]:
        """Conditions under which the kernels do not hold, and the reasons, in Python."""
        anchor = ""
        for guard in self.guards.tensors:
            name, label = self.parameters[guard.variable], _inside(guard.label)
            yield (
                f"type({name}) not in (torch.Tensor, torch.nn.Parameter)",
                f'f"{label} is a {{type({name}).__name__}}, this version holds for a plain tensor"',
            )
            rank = len(guard.dimensions)
            yield (
                f"{name}.dim() != {rank}",
                f'f"{label} has {{{name}.dim()}} dimensions, this version holds for {rank}"',
            )
            dtype = f"torch.{guard.dtype}"
            yield f"{name}.dtype != {dtype}", f'f"{label} is {{{name}.dtype}}, this version holds for {dtype}"'
            if anchor:
                place = f"{{{name}.device}} and {_inside(self.guards.tensors[0].label)} on {{{anchor}.device}}"
                yield f"{name}.device != {anchor}.device", f'f"{label} is on {place}"'
            anchor = anchor or name
        for guard in self.guards.tensors:
            yield from self._sizes(guard)
            yield self._layout(guard)
        yield from self._together()

    def _sizes(self, guard: TensorGuard) -> Iterator[tuple[str, str]]:
        name, label = self.parameters[guard.variable], _inside(guard.label)
        for at, dimension in enumerate(guard.dimensions):
            size, said = f"{name}.shape[{at}]", f"{label}.shape[{at}] is {{{name}.shape[{at}]}}"
            if dimension.kind == "constant":
                yield f"{size} != {dimension.value}", f'f"{said}, it must be {dimension.value}"'
            elif dimension.kind == "tied":
                text = self._text(dimension.text)
                spoken = _inside(self.guards.spoken(dimension.text))
                yield f"{size} != {text}", f'f"{said}, it must be {spoken} = {{{text}}}"'
            elif dimension.kind == "free":
                if dimension.low:
                    yield f"{size} < {dimension.low}", f'f"{said}, it must be {dimension.low} or more"'
                if dimension.high is not None:
                    yield f"{size} > {dimension.high}", f'f"{said}, it must be {dimension.high} or less"'

    def _layout(self, guard: TensorGuard) -> tuple[str, str]:
        name, label = self.parameters[guard.variable], _inside(guard.label)
        said = f"{label} has the shape {{tuple({name}.shape)}} and the strides {{{name}.stride()}}"
        if guard.contiguous:
            return f"not {name}.is_contiguous()", f'f"{said}, it must be contiguous"'
        if guard.order is None:
            return f"{name}.stride() != {guard.strides}", f'f"{said}, the strides must be {guard.strides}"'
        condition = f"not {name}.permute({', '.join(map(str, guard.order))}).is_contiguous()"
        return condition, f'f"{said}, its dimensions must lie in the order {guard.order}"'

    def _together(self) -> Iterator[tuple[str, str]]:
        names, rows = self.guards.listed
        if names:
            sizes = f"({', '.join(map(self._text, names))}{',' * (len(names) == 1)})"
            said = f"({', '.join(_inside(self.guards.spoken(name)) for name in names)}) is {{{sizes}}}"
            yield f"{sizes} not in {rows}", f'f"{said}, it must be one of {rows}"'
        for text in self.guards.conditions:
            yield f"not ({self._text(text)})", repr(f"it does not hold that {self.guards.spoken(text)}")

    def _text(self, text: str) -> str:
        """An expression of the guards with the names of the parameters of `why_not`."""
        return renamed(text, self.parameters)

    def _admits(self) -> list[str]:
        head = ", ".join(part for part in (self.own["module"], self.signature.text) if part)
        found = self._state()
        tensors = [self.variables[guard.variable] for guard in self.guards.tensors]
        numbers = [self.variables[number.variable] for number in self.guards.numbers]
        lines = [
            f"def {self.admits}({head}):",
            f'{_STEP}"""What keeps the kernels from this call; None where they may run.',
            "",
            f"{_STEP}Each form of tensors is looked at once; the module keeps the forms that are known.",
            f'{_STEP}"""',
        ]
        for condition, reason in self._arguments():
            lines += [f"{_STEP}if {condition}:", f"{_STEP * 2}return {reason}"]
        if found:
            lines += [f"{_STEP}try:", *(_STEP * 2 + line for line in found)]
            lines += [f"{_STEP}except (AttributeError, KeyError, TypeError) as {self.own['error']}:"]
            said = f"the module does not keep its tensors where it did: {{{self.own['error']}}}"
            lines += [f'{_STEP * 2}return f"{said}"']
        if tensors:
            words = self.own | {"WHY_NOT": self.why_not, "Forms": self.forms, "FIRST": tensors[0]}
            words |= {"TENSORS": ", ".join(tensors), "NUMBERS": f"({', '.join(numbers)}{',' * (len(numbers) == 1)})"}
            words |= {"ASKED": ", ".join([*tensors, *numbers])}
            words["WANTING"] = " or ".join(f"{tensor}.requires_grad" for tensor in tensors)
            known = renamed(_KNOWN, words).splitlines()
            known[1:1] = [_STEP + line for line in self._memory()]
            lines += [_STEP + line for line in known]
        return [*lines, f"{_STEP}return None"] if not tensors else lines

    def _memory(self) -> list[str]:
        """Checks that what forward changes lies in memory of its own, which is seen by no form."""
        lines = []
        for changed in self.guards.changed:
            others = [guard for guard in self.guards.tensors if guard.variable != changed]
            if not others:
                continue
            own = next(guard for guard in self.guards.tensors if guard.variable == changed)
            name = self.variables[changed]
            for other in others:
                said = f"{_inside(own.label)} is changed and shares memory with {_inside(other.label)}"
                lines.append(f"if {self.forms}.share({name}, {self.variables[other.variable]}):")
                lines.append(f'{_STEP}return "{said}"')
        return lines

    def _arguments(self) -> Iterator[tuple[str, str]]:
        """Conditions on the arguments that are no tensors."""
        for fixed in self.guards.fixed:
            name = self.signature.argument(fixed.argument) + ("" if fixed.item is None else f"[{fixed.item}]")
            yield from self._is(name, fixed.value)
        lists: dict[int, int] = {}
        places = [(tensor.argument, tensor.item) for tensor in self.guards.inputs]
        for place, item in [*places, *((fixed.argument, fixed.item) for fixed in self.guards.fixed)]:
            if item is not None and place is not None:
                lists[place] = max(lists.get(place, 0), item + 1)
        for place, count in lists.items():
            name = self.signature.argument(place)
            said = f'f"{name} has {{len({name})}} items, this version holds for {count}"'
            yield f"len({name}) != {count}", said
        if self.signature.several is not None:
            count = max(0, self.guards.given - self.signature.positional)
            several = self.signature.several
            said = f'f"{{len({several})}} arguments in {several}, this version holds for {count}"'
            yield f"len({several}) != {count}", said
        for name, default in list(zip(self.signature.names, self.signature.defaults, strict=True))[self.guards.given :]:
            if default is not None:
                yield from self._is(name, default)

    def _is(self, name: str, value: str) -> Iterator[tuple[str, str]]:
        said = f'f"{_inside(name)} is {{{name}!r}}, this version holds for {_inside(value)}"'
        if value in ("None", "True", "False"):
            yield f"{name} is not {value}", said
        else:
            literal = f'float("{value}")' if value in ("inf", "-inf", "nan") else value
            yield f"type({name}) is not type({literal}) or {name} != {literal}", said

    def _state(self) -> list[str]:
        """Reads the module's tensors, numbers and modes, without the detour of torch.nn.Module.__getattr__."""
        lines: list[str] = []
        for guard in self.guards.state:
            path, _, name = guard.label.rpartition(".")
            owner, kept = self._module(path, lines), self.variables[guard.variable]
            where = {"parameter": f'._parameters["{name}"]', "buffer": f'._buffers["{name}"]'}.get(guard.held_as)
            lines.append(f"{kept} = {owner}{where or f'.{name}'}")
        for number in self.guards.numbers:
            path, _, name = number.path.rpartition(".")
            owner = self._module(path, lines)
            lines.append(f"{self.variables[number.variable]} = {owner}.{name}")
        for path, training in self.guards.modes:
            owner = self._module(path, lines)
            mode = "evaluation" if training else "training"
            said = f"{path or 'the module'} is in {mode} mode, which gives something else"
            lines += [f"if {owner}.training is not {training}:", f'{_STEP}return "{said}"']
        return lines

    def _module(self, path: str, lines: list[str]) -> str:
        """The variable of a submodule, which is read where it is first needed."""
        if not path:
            return self.own["module"]
        if path not in self.modules:
            around, _, name = path.rpartition(".")
            owner = self._module(around, lines)
            self.modules[path] = self._name(path.replace(".", "_") + "_module")
            lines.append(f'{self.modules[path]} = {owner}._modules["{name}"]')
        return self.modules[path]


def _inside(text: str) -> str:
    """Text as it stands inside of an f-string."""
    return text.replace("\\", "\\\\").replace('"', "'").replace("{", "{{").replace("}", "}}")


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name

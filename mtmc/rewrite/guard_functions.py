"""guard_functions: the two functions that a version with guards has: `why_not` and `admits`."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from mtmc.rewrite.graph import in_tuple
from mtmc.rewrite.guard_conditions import conditions, inside
from mtmc.rewrite.guard_forms import FORMS, KNOWN
from mtmc.rewrite.guards import Guards, renamed

ADMITS = "admits"
REFUSAL = "this kernel version does not hold: "
_STEP = "    "
_OWN = ("module", "tensors", "known", "like", "wanting", "several", "numbers", "shared", "labels", "error", "reason")
"""Variables of `admits`; `reason` is one of forward too."""


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
    read: dict[tuple[str, str], str] = field(default_factory=dict)
    """Variables of submodules and their dictionaries, by path and what it is."""

    def __post_init__(self) -> None:
        self.why_not, self.admits, self.forms = (_free(name, self.words) for name in ("why_not", ADMITS, "Forms"))
        self.compiling = _free("compiling", self.words)
        self.taken = {"torch", "math", *dir(builtins), *self.signature.names, self.signature.several or ""}
        self.own = {name: _free(name, self.words if name == "reason" else self.taken) for name in _OWN}
        self.taken |= set(self.own.values())
        self.taken |= {self.why_not, self.admits, self.forms, self.compiling}
        own = [tensor.variable for tensor in self.guards.state] + [number.variable for number in self.guards.numbers]
        self.variables |= {variable: self._name(variable) for variable in own}
        for guard in self.guards.inputs:
            assert guard.argument is not None
            text = self.signature.argument(guard.argument) + ("" if guard.item is None else f"[{guard.item}]")
            self.variables[guard.variable] = text
        self.parameters = {
            guard.variable: variable
            if (variable := self.variables[guard.variable]).isidentifier() and variable not in dir(builtins)
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
        forms = [*renamed(FORMS, {"Forms": self.forms}).splitlines(), "", ""] if self.guards.tensors else []
        bound = [f"{self.compiling} = torch.compiler.is_dynamo_compiling", "", ""] if self.guards.tensors else []
        return [*forms, *bound, *self._why_not(), "", "", *self._admits()]

    def _why_not(self) -> list[str]:
        lines = [f"def {self.why_not}({', '.join(self.parameters.values())}):"]
        lines.append(
            f'{_STEP}"""What keeps the kernels from these tensors and numbers; None where they may run on them."""'
        )
        checks = list(conditions(self.guards, self.parameters))
        lines += [f"{_STEP}import math"] if any("math." in condition for condition, _ in checks) else []
        for condition, reason in checks:
            lines += [f"{_STEP}if {condition}:", f"{_STEP * 2}return {reason}"]
        return [*lines, f"{_STEP}return None"]

    def _admits(self) -> list[str]:
        head = ", ".join(part for part in (self.own["module"], self.signature.text) if part)
        own, found, state = self.own, list[str](), dict[str, str]()
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
        for guard in self.guards.inputs:
            name, place = self.parameters[guard.variable], self.variables[guard.variable]
            lines += [f"{_STEP}{name} = {place}"] if name != place else []
            state[guard.variable] = name
        state |= self._state(found)
        if state:
            tensors = [state[guard.variable] for guard in self.guards.tensors]
            found.append(f"{own['tensors']} = ({', '.join(tensors)}{',' * (len(tensors) == 1)})")
        if found:
            lines += [f"{_STEP}try:", *(_STEP * 2 + line for line in found)]
            lines += [f"{_STEP}except (AttributeError, KeyError, TypeError) as {own['error']}:"]
            said = f"the module does not keep its tensors where it did: {{{own['error']}}}"
            lines += [f'{_STEP * 2}return f"{said}"']
        if not state:
            return [*lines, f"{_STEP}return None"]
        listed = f"({', '.join(numbers)}{',' * (len(numbers) == 1)})"
        passed = ", ".join([f"*{own['tensors']}", *numbers])
        words = own | {"WHY_NOT": self.why_not, "Forms": self.forms, "COMPILING": self.compiling}
        words |= {"PASSED": passed, "NUMBERS": listed}
        words["SAME"] = f" and {own['numbers']} == {listed}" if numbers else ""
        known = renamed(KNOWN, words).splitlines()
        known[1:1] = [_STEP + line for line in self._memory()]
        return [*lines, *(_STEP + line for line in known)]

    def _memory(self) -> list[str]:
        """The check that what forward changes lies in memory of its own, which is seen by no form."""
        changed = [at for at, tensor in enumerate(self.guards.tensors) if tensor.variable in self.guards.changed]
        if not changed:
            return []
        tensors, shared, labels = (self.own[name] for name in ("tensors", "shared", "labels"))
        return [
            f"{shared} = {self.forms}.shared({tensors}, {tuple(changed)})",
            f"if {shared} is not None:",
            f"{_STEP}{labels} = {tuple(tensor.label for tensor in self.guards.tensors)}",
            f'{_STEP}return f"{{{labels}[{shared}[0]]}} is changed and shares memory with {{{labels}[{shared}[1]]}}"',
        ]

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
            said = f'f"{name} has {{{name}.__len__()}} items, this version holds for {count}"'
            yield f"{name}.__len__() != {count}", said
        if self.signature.several is not None:
            count = max(0, self.guards.given - self.signature.positional)
            several = self.signature.several
            said = f'f"{{{several}.__len__()}} arguments in {several}, this version holds for {count}"'
            yield f"{several}.__len__() != {count}", said
        for name, default in list(zip(self.signature.names, self.signature.defaults, strict=True))[self.guards.given :]:
            if default is not None:
                yield from self._is(name, default)

    def _is(self, name: str, value: str) -> Iterator[tuple[str, str]]:
        said = f'f"{inside(name)} is {{{name}!r}}, this version holds for {inside(value)}"'
        if value in ("None", "True", "False"):
            yield f"{name} is not {value}", said
        else:
            literal = {"inf": "1e999", "-inf": "-1e999", "nan": "(1e999 - 1e999)"}.get(value, value)
            yield f"{name}.__class__ is not ({literal}).__class__ or {name} != {literal}", said

    def _state(self, lines: list[str]) -> dict[str, str]:
        """Adds what reads the module's numbers and modes, and gives the expressions of its tensors by their variables.

        Without the detour of torch.nn.Module.__getattr__, and each dictionary of a module is found once: that is most of
        what a check of a known form does in Python.
        """
        found = {}
        for guard in self.guards.state:
            path, _, name = guard.label.rpartition(".")
            where = {"parameter": "_parameters", "buffer": "_buffers"}.get(guard.held_as)
            found[guard.variable] = (
                f'{self._read(path, where, lines)}["{name}"]' if where else f"{self._module(path, lines)}.{name}"
            )
        for number in self.guards.numbers:
            path, _, name = number.path.rpartition(".")
            if in_tuple(number.path):
                path, _, held = path.rpartition(".")
                name = f"{held}[{name}]"
            lines.append(f"{self.variables[number.variable]} = {self._module(path, lines)}.{name}")
        for path, training in self.guards.modes:
            owner = self._module(path, lines)
            mode = "evaluation" if training else "training"
            said = f"{path or 'the module'} is in {mode} mode, which gives something else"
            lines += [f"if {owner}.training is not {training}:", f'{_STEP}return "{said}"']
        return found

    def _module(self, path: str, lines: list[str]) -> str:
        """The variable of a submodule, which is read where it is first needed."""
        if not path:
            return self.own["module"]
        around, _, name = path.rpartition(".")
        return self._once(path, "module", lambda: f'{self._read(around, "_modules", lines)}["{name}"]', lines)

    def _read(self, path: str, where: str, lines: list[str]) -> str:
        """The variable of one of a submodule's dictionaries."""
        around, _, name = path.rpartition(".")
        owner = (lambda: f'{self._read(around, "_modules", lines)}["{name}"]') if path else lambda: self.own["module"]
        return self._once(path, where.strip("_"), lambda: f"{owner()}.{where}", lines)

    def _once(self, path: str, what: str, text: Callable[[], str], lines: list[str]) -> str:
        if (path, what) not in self.read:
            value = text()
            self.read[path, what] = self._name("_".join([*path.split("."), what] if path else [what]))
            lines.append(f"{self.read[path, what]} = {value}")
        return self.read[path, what]


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name

"""CallForm: the tensors of a call, where it is like the example's in all that is no tensor."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from mtmc.task.live_call import Call, matched

_MOST = 256
"""Ways of passing arguments that are remembered."""


class _Step(NamedTuple):
    """What one argument of the example has to be. key: where a call has it, by position or by name."""

    key: int | str
    wanted: Any
    name: str


class _Given(NamedTuple):
    """Stands for an argument that a call gives."""

    key: int | str


class CallForm:
    """How a winner's inputs are found among the arguments of a call, however they are passed.

    A call is worked out against the signature once for each number of positional arguments and set of names.
    """

    def __init__(self, forward: Callable[..., Any], example: Call) -> None:
        """forward: bound, for its signature. example: with tensors of the right number; their values are not read."""
        self._signature = inspect.signature(forward)
        self._example = example
        self._plans: dict[tuple[int | str, ...], tuple[_Step, ...] | str | None] = {}

    def tensors(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Any] | str:
        """What a call gives in the places of the example's tensors, in order, or how it is another call."""
        form: tuple[int | str, ...] = (len(args), *kwargs)
        try:
            plan = self._plans[form]
        except KeyError:
            plan = self._remember(form)
        if plan is None:
            return args
        if isinstance(plan, str):
            return plan
        tensors: list[Any] = []
        for key, wanted, name in plan:
            given = args[key] if type(key) is int else kwargs[key]  # type: ignore[index]
            if isinstance(wanted, torch.Tensor):
                tensors.append(given)
            elif given is not wanted or wanted not in (None, True, False):
                found = matched(Call((wanted,), {}, (name,)), Call((given,), {}, (name,)))
                if isinstance(found, str):
                    return found
                tensors += found
        return tensors

    def _remember(self, form: tuple[int | str, ...]) -> tuple[_Step, ...] | str | None:
        if len(self._plans) == _MOST:
            self._plans.clear()
        self._plans[form] = self._plan(form)
        return self._plans[form]

    def _plan(self, form: tuple[int | str, ...]) -> tuple[_Step, ...] | str | None:
        """The arguments to look at, None where they are all tensors in the example's order, or why no call fits."""
        count, *names = form
        assert isinstance(count, int)
        try:
            bound = self._signature.bind(
                *(_Given(index) for index in range(count)), **{str(name): _Given(name) for name in names}
            )
        except TypeError as error:
            return f"the call does not fit forward: {error}"
        bound.apply_defaults()
        example = self._example
        if len(bound.args) != len(example.args) or bound.kwargs.keys() != example.kwargs.keys():
            return "the call has other arguments than the example's"
        pairs = [(example.name(index), wanted, bound.args[index]) for index, wanted in enumerate(example.args)]
        pairs += [(name, wanted, bound.kwargs[name]) for name, wanted in example.kwargs.items()]
        steps = []
        for name, wanted, given in pairs:
            if isinstance(given, _Given):
                steps.append(_Step(given.key, wanted, name))
            else:
                found = matched(Call((wanted,), {}, (name,)), Call((given,), {}, (name,)))
                if isinstance(found, str):
                    return found
        in_order = [step.key for step in steps] == list(range(count))
        return None if in_order and all(isinstance(step.wanted, torch.Tensor) for step in steps) else tuple(steps)

"""Winner: a version of a captured module, bound to the tensors of a live one, and the calls that it holds for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from mtmc.dropin.call_form import CallForm
from mtmc.dropin.holds_for import HoldsFor
from mtmc.dropin.loaded import Instance, launchable, launched_on
from mtmc.dropin.named_values import asks_for_gradient_mode
from mtmc.dropin.places import holder
from mtmc.dropin.recent import Recent
from mtmc.dropin.recipe import Recipe
from mtmc.dropin.results import Result
from mtmc.dropin.traced import Traced
from mtmc.task.tensors import same_memory

_MOST = 4096
"""Signatures that are remembered."""

NOT_HERE = "its tensors are on the CPU, and its kernels need a GPU"

WANTS_GRAD = "gradients are wanted, and its kernels have no backward: call it under torch.no_grad()"

_grad_enabled = torch.is_grad_enabled
_set_grad = torch._C._set_grad_enabled
_default_dtype = torch.get_default_dtype


class Verdict:
    """What is known of one signature. instance: the kernels, None where `reason` says why they are not for it.

    launched: whether they have run on it once. wants_grad: whether a tensor requires grad.
    """

    __slots__ = ("device", "instance", "is_cuda", "launched", "reason", "wants_grad")

    def __init__(self, instance: Instance | None, reason: str, device: torch.device) -> None:
        self.instance, self.reason, self.device = instance, reason, device
        self.is_cuda = device.type == "cuda"
        self.launched = self.wants_grad = False


class Admitted(NamedTuple):
    """A call that a winner holds for. inputs: the call's tensors. tensors: the module's."""

    verdict: Verdict
    inputs: Sequence[torch.Tensor]
    tensors: list[torch.Tensor]


class Winner:
    """Kernels of one recipe over the tensors that a live module holds at each call."""

    def __init__(self, recipe: Recipe, module: torch.nn.Module, forward: Callable[..., Any]) -> None:
        """forward: of the original, bound, for its signature.

        Raises: TaskError if the module lacks a tensor that the version reads; whatever the source raises.
        """
        self.recipe = recipe
        self.places = [holder(module, path) for path in recipe.places.values()]
        order = {attribute: index for index, attribute in enumerate(recipe.places)}
        self._ties = [(order[attribute], path, *holder(module, path)) for attribute, path in recipe.ties]
        self._paths = list(recipe.places.values())
        self._asks = asks_for_gradient_mode(map(type, module.modules()))
        self._dtype: torch.dtype = getattr(torch, recipe.default_dtype)
        self.holds_for = HoldsFor(recipe, self.tensors())
        self.mutated = self.holds_for.mutated
        self._form = CallForm(forward, recipe.call)
        self.verified = False
        self._instances: dict[torch.device, Instance] = {}
        self._verdicts: dict[tuple[Any, ...], Verdict] = {}
        self._recent = Recent()
        self._restore = Result(recipe.output).restore
        self.traced: Traced | None = None
        with contextlib.suppress(TypeError):  # the compiler cannot follow such a call, and gets the original
            self.traced = Traced(recipe, module, forward, self.mutated)

    def admit(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Admitted | str:
        """The tensors of a call that the kernels hold for, or why they do not."""
        found = self._form.tensors(args, kwargs)
        if isinstance(found, str):
            return found
        inputs: Sequence[Any] = found
        if _default_dtype() is not self._dtype:
            return f"torch's default dtype is {_default_dtype()}, unlike at capture"
        if self._asks and (_grad_enabled() or torch.is_inference_mode_enabled()):
            return "forward asks for the gradient mode, and was captured under torch.no_grad()"
        tensors: list[Any] = []
        try:
            tensors = [owner[name] for owner, name in self.places]
            for index, path, owner, name in self._ties:
                if owner.get(name) is not tensors[index] and not _one(owner.get(name), tensors[index]):
                    return f"{path} and {self._paths[index]} are no longer one tensor, as at capture"
            every = (*inputs, *tensors)
            verdict: Verdict | None = self._recent.find(every)
            if verdict is None:
                verdict = self._known(every, inputs, tensors)
            if verdict.wants_grad and _grad_enabled():
                return WANTS_GRAD
        except (AttributeError, KeyError, TypeError, RuntimeError):  # no tensor, a sparse one, a removed one
            return self._odd(inputs, tensors)
        if verdict.instance is None:
            return verdict.reason
        if self.mutated and self.holds_for.overlap(inputs, tensors):
            return "tensors that it changes share memory with others"
        return Admitted(verdict, inputs, tensors)

    def _known(self, every: Sequence[Any], inputs: Sequence[Any], tensors: Sequence[torch.Tensor]) -> Verdict:
        """What is known of tensors of this form; a new form is judged once."""
        key: list[Any] = []
        for x in every:
            key += (type(x), x.shape, x.stride(), x.dtype, x.device, x.requires_grad, x.is_neg())
        signature = tuple(key)
        verdict = self._verdicts.get(signature)
        if verdict is None:
            verdict = self._judge(inputs, tensors)
            verdict.wants_grad = any(x.requires_grad for x in every)
            if len(self._verdicts) == _MOST:
                self._verdicts.clear()
            self._verdicts[signature] = verdict
        self._recent.keep(every, verdict)
        return verdict

    def run(self, call: Admitted) -> Any:
        """What the module returns for an admitted call.

        Raises: whatever a launch raises; then no tensor has changed where the signature is launched for the first time.
        """
        verdict, inputs, tensors = call
        assert verdict.instance is not None
        if not verdict.launched:
            result = self._first(verdict, inputs, tensors)
            verdict.launched = True
            return result
        return self._launch(verdict, inputs, tensors)

    def _launch(self, verdict: Verdict, inputs: Sequence[torch.Tensor], tensors: list[torch.Tensor]) -> Any:
        assert verdict.instance is not None
        if _grad_enabled():
            _set_grad(False)
            try:
                return self._launch(verdict, inputs, tensors)
            finally:
                _set_grad(True)
        if verdict.is_cuda and verdict.device.index != torch.cuda.current_device():
            with launched_on(verdict.device):
                return self._restore(verdict.instance.run(inputs, tensors))
        return self._restore(verdict.instance.run(inputs, tensors))

    def _first(self, verdict: Verdict, inputs: Sequence[torch.Tensor], tensors: list[torch.Tensor]) -> Any:
        """A first launch, which may fail in its middle: what it changes is put back before the error goes on."""
        changed = self.holds_for.changed(inputs, tensors)
        before = [tensor.clone() for tensor in changed]
        try:
            return self._launch(verdict, inputs, tensors)
        except Exception:
            with torch.no_grad(), contextlib.suppress(RuntimeError):  # a context that is broken holds nothing any more
                for tensor, value in zip(changed, before, strict=True):
                    tensor.copy_(value)
            raise

    def tensors(self) -> list[torch.Tensor]:
        """The module's tensors that it reads."""
        return [owner[key] for owner, key in self.places]

    def mutated_names(self) -> list[str]:
        """Paths of the module's tensors that a call changes."""
        paths = list(self.recipe.places.values())
        first = len(self.recipe.call.tensors)
        return [paths[index - first] for index in self.mutated if index >= first]

    def give_up(self, call: Admitted, reason: str) -> None:
        """Never launch for this call's signature again."""
        call.verdict.instance, call.verdict.reason = None, reason

    def _judge(self, inputs: Sequence[Any], tensors: Sequence[torch.Tensor]) -> Verdict:
        device = inputs[0].device
        reason = self.holds_for.why_not(inputs, tensors)
        if reason is None and not launchable(device):
            reason = NOT_HERE
        if reason is not None:
            return Verdict(None, reason, device)
        if device not in self._instances:
            recipe = self.recipe
            try:
                self._instances[device] = Instance(
                    recipe.source, "ModelNew", list(recipe.places), recipe.constants, device
                )
            except Exception as error:  # the source is a program: whatever it raises
                return Verdict(None, f"its kernels cannot be loaded: {type(error).__name__}: {error}", device)
        instance = self._instances[device]
        reason = self._refusal(instance, inputs, tensors)
        return Verdict(instance if reason is None else None, reason or "", device)

    def _refusal(
        self, instance: Instance, inputs: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]
    ) -> str | None:
        """What the version's guards say, or where it has none whether inputs are of the example's form."""
        if not instance.is_guarded:
            return self.holds_for.other_form(inputs)
        with launched_on(inputs[0].device), torch.no_grad():
            return instance.why_not(inputs, tensors)

    def _odd(self, inputs: Sequence[Any], tensors: Sequence[Any]) -> str:
        if len(tensors) < len(self.places) or not all(isinstance(x, torch.Tensor) for x in tensors):
            return "the module lacks a tensor that it had at capture"
        wrong = [x for x in inputs if not isinstance(x, torch.Tensor)]
        if wrong:
            return f"the call holds a {type(wrong[0]).__name__} where the example's holds a tensor"
        return "a tensor of the call or the module has no strides"


def _one(found: Any, tensor: Any) -> bool:
    return isinstance(found, torch.Tensor) and same_memory(found, tensor)

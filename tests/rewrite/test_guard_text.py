"""The text that is handed out: a version of any coder with its guards, and what they cost a call."""

from __future__ import annotations

import copy
import itertools
import pickle
import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from benchmarks import guard_cost
from mtmc.errors import CoderError
from mtmc.rewrite.guard_text import check_name, guarded
from mtmc.rewrite.guards import Dimension, FixedGuard, Guards, NumberGuard, TensorGuard, guards_from_json

FREE = Dimension("free", (4, 5, 6), low=2)
X = TensorGuard("x", "x", (FREE, Dimension("constant", (8, 8, 8), value=8)), "float32", (0, 1), argument=0)
GUARDS = Guards((X,), given=1)
NUMBERS = itertools.count()

PLAIN = '''"""A version.

With two paragraphs.
"""
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        """What it gives."""
        return x + 1
'''


@pytest.fixture
def load() -> Iterator[Any]:
    """Executes texts as modules that are found by name, as pickle needs it."""
    names = []

    def made(source: str) -> types.ModuleType:
        name = f"handed_out_{next(NUMBERS)}"
        module = types.ModuleType(name)
        sys.modules[name] = module
        names.append(name)
        exec(compile(source, name, "exec"), module.__dict__)
        return module

    yield made
    for name in names:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def test_forward_checks_and_the_rest_of_the_text_stays(load: Any) -> None:
    text = guarded(PLAIN, GUARDS)
    model = load(text).ModelNew()
    assert torch.equal(model(torch.zeros(3, 8)), torch.ones(3, 8))
    with pytest.raises(ValueError, match=r"does not hold: x.shape\[1\] is 9, it must be 8"):
        model(torch.zeros(3, 9))
    assert model.forward.__doc__ == "What it gives."
    assert "With two paragraphs.\n\nHolds for the following alone" in text and "- x: float32 (2 or more, 8)" in text
    assert [line for line in PLAIN.splitlines() if line not in text.splitlines()] == []


HEAD = "import torch\nfrom torch import nn\n"
WAYS = {
    "one line": HEAD + "class ModelNew(nn.Module):\n    def forward(this, y): return y + 1\n",
    "two statements": HEAD + "class ModelNew(nn.Module):\n  def forward(s, y, z=None):\n    é = 1; return y + é\n",
    "inherited": HEAD
    + """
class Base(nn.Module):
    def forward(self, x):
        return x + 1


class ModelNew(Base):
    pass
""",
    "names that are taken": HEAD
    + """
why_not = Forms = 0


def admits(x):
    return x


@staticmethod
def f():
    pass


class ModelNew(nn.Module):
    @torch.no_grad()
    def forward(self, *rest):
        return admits(rest[0]) + 1
""",
    "names of builtins": HEAD
    + """
class ModelNew(nn.Module):
    def forward(self, type, len=[1], any=2.5):
        return type + 1
""",
    "names of its own": "# a comment\nfrom __future__ import annotations\n"
    + HEAD
    + """
class ModelNew(nn.Module):
    def forward(self, module: Y, *, reason=1):
        def like():
            return module + reason
        return like()
""",
}


@pytest.mark.parametrize("source", WAYS.values(), ids=WAYS)
def test_any_way_to_write_a_forward(load: Any, source: str) -> None:
    text = guarded(source, GUARDS)
    module = load(text)
    model = module.ModelNew()
    assert torch.equal(model(torch.zeros(3, 8)), torch.ones(3, 8))
    with pytest.raises(ValueError, match="has 3 dimensions"):
        model(torch.zeros(3, 8, 8))
    check = getattr(module, check_name(text))
    assert check(model, torch.zeros(3, 8)) is None and "has 1 dim" in check(model, torch.zeros(8))
    others = {"reason=": {"reason": 2}, "z=": {"z": 2}, "len=": {"len": []}, "": {"q": 2}}
    said = r"reason is 2|arguments in rest|z is 2|len is \[\]|unexpected|positional"
    with pytest.raises((ValueError, TypeError), match=said):
        model(torch.zeros(3, 8), **next(more for part, more in others.items() if part in source))


def test_a_text_without_a_forward_is_refused() -> None:
    with pytest.raises(CoderError, match="no class ModelNew"):
        guarded("class Model: pass", GUARDS)
    with pytest.raises(CoderError, match="no forward"):
        guarded("from torch import nn\nclass ModelNew(nn.Linear):\n    pass\n", GUARDS)


def test_lists_and_arguments_that_are_no_tensors(load: Any) -> None:
    items = tuple(replace(X, variable=f"xs_{at}", label=f"xs[{at}]", item=at) for at in range(2))
    fixed = (FixedGuard(1, "3"), FixedGuard(2, "inf"), FixedGuard(3, "None"))
    source = PLAIN.replace("self, x)", "self, xs, k, top, mask, more=True)").replace("x + 1", "xs[0] + xs[1] + k")
    model = load(guarded(source, Guards(items, given=4, fixed=fixed))).ModelNew()
    xs = [torch.zeros(3, 8), torch.ones(3, 8)]
    assert torch.equal(model(xs, 3, float("inf"), None), torch.full((3, 8), 4.0))
    for changed, reason in [
        (([*xs, xs[0]], 3, float("inf"), None), "xs has 3 items"),
        ((xs[:1], 3, float("inf"), None), "xs has 1 items"),
        (([xs[0], xs[1][0]], 3, float("inf"), None), r"xs\[1\] has 1 dimensions"),
        ((xs, 4, float("inf"), None), "k is 4"),
        ((xs, True, float("inf"), None), "k is True"),
        ((xs, 3, 1.0, None), "top is 1.0"),
        ((xs, 3, float("inf"), xs[0]), "mask is"),
        ((xs, 3, float("inf"), None, False), "more is False"),
    ]:
        with pytest.raises(ValueError, match=reason):
            model(*changed)


LAYER = PLAIN.replace(
    "    def forward",
    "    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(8, 8)\n\n    def forward",
)


def layered() -> Guards:
    """The guards of LAYER."""
    eight = Dimension("tied", (8, 16, 24), text="width")
    weight = TensorGuard("fc_weight", "fc.weight", (eight, eight), "float32", (0, 1), held_as="parameter")
    number = NumberGuard("width", "fc.in_features")
    return Guards((X, weight), given=1, numbers=(number,))


@pytest.mark.parametrize("compiled", [True, False], ids=["torch's check", "in Python"])
def test_what_is_remembered_of_a_call_is_no_more_than_it_was(
    load: Any, monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    """After a call that it holds for, each of these changes is seen, and one back to what it was."""
    if not compiled:
        monkeypatch.setitem(sys.modules, "torch._C._dynamo.guards", None)
    module = load(guarded(LAYER, layered()))
    x = torch.zeros(3, 8)
    changes = {
        "double": lambda m: m.double(),
        "half after double": lambda m: m.double().half(),
        "turned in place": lambda m: setattr(m.fc.weight, "data", m.fc.weight.data.t()),
        "cut in place": lambda m: setattr(m.fc.weight, "data", m.fc.weight.data[:4]),
        "widened in place": lambda m: setattr(m.fc.weight, "data", torch.zeros(9, 9)),
        "replaced": lambda m: setattr(m.fc, "weight", torch.nn.Parameter(torch.zeros(8, 9))),
        "assigned": lambda m: (
            m.load_state_dict({"fc.weight": torch.ones(8, 8).t(), "fc.bias": m.fc.bias}, assign=True)
            and setattr(m.fc.weight, "data", torch.zeros(16, 16)[::2, ::2])
        ),
        "another layer": lambda m: setattr(m, "fc", torch.nn.Identity()),
        "another number": lambda m: setattr(m.fc, "in_features", 9),
        "moved": lambda m: m.to("meta"),
    }
    for name, change in changes.items():
        model = module.ModelNew()
        assert module.admits(model, x) is None and module.admits(model, x) is None
        change(model)
        assert module.admits(model, x) is not None, name
    model = module.ModelNew()
    for given in (x, torch.zeros(5, 8), x, torch.zeros(3, 8)):
        assert module.admits(model, given) is None
    assert "gradients" in with_gradients(module, model, x) and module.admits(model.requires_grad_(False), x) is None
    assert with_gradients(module, model, x) is None and "gradients" in with_gradients(
        module, model, x.clone().requires_grad_()
    )
    with torch.autocast("cpu", torch.bfloat16):
        assert "autocast" in module.admits(model, x)
    with torch.inference_mode():
        assert module.admits(model, x) is None and module.admits(model, torch.zeros(3, 8)) is None
    assert module.admits(model, x.double()) is not None and module.admits(model, None) is not None


def with_gradients(module: Any, model: Any, x: torch.Tensor) -> Any:
    """What is found where gradients are recorded."""
    with torch.enable_grad():
        return module.admits(model, x)


@pytest.mark.parametrize("compiled", [True, False], ids=["torch's check", "in Python"])
def test_a_negated_view_is_refused(load: Any, monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
    """Its memory holds the opposite of its values, and neither its form nor its layout tells so."""
    if not compiled:
        monkeypatch.setitem(sys.modules, "torch._C._dynamo.guards", None)
    module = load(guarded(PLAIN, GUARDS))
    model, x = module.ModelNew(), torch.zeros(3, 8)
    assert module.admits(model, x) is None
    assert "negated" in module.admits(model, torch._neg_view(x)) and module.admits(model, x) is None


def test_one_tensor_that_is_given_twice(load: Any) -> None:
    both = (X, replace(X, variable="y", label="y", argument=1))
    source = PLAIN.replace("self, x)", "self, x, y)")
    model = load(guarded(source, Guards(both, given=2))).ModelNew()
    x = torch.zeros(3, 8)
    for _ in range(3):
        model(x, x)
        model(x, torch.zeros(3, 8))
    forms = len(model._known_forms)
    assert forms == 2, "both ways are known from their first call on"
    for other in (x[0], x.double(), torch.zeros(8, 3).t(), torch._neg_view(x)):
        with pytest.raises(ValueError):
            model(x, other)
        with pytest.raises(ValueError):
            model(other, other)
    assert len(model._known_forms) == forms


def test_a_module_with_guards_is_copied_and_pickled(load: Any) -> None:
    module = load(guarded(LAYER, layered()))
    model = module.ModelNew()
    assert model(torch.zeros(3, 8)) is not None
    for other in (copy.deepcopy(model), copy.copy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(torch.zeros(3, 8)), torch.ones(3, 8))
        assert list(other.state_dict()) == list(model.state_dict())
        with pytest.raises(ValueError):
            other(torch.zeros(3, 9))


def test_torch_compile_goes_through_the_guards(load: Any) -> None:
    module = load(guarded(LAYER, layered()))
    model = module.ModelNew()
    compiled = torch.compile(model, fullgraph=True, backend="eager", dynamic=True)
    for rows in (3, 5, 9):
        assert torch.equal(compiled(torch.zeros(rows, 8)), torch.ones(rows, 8))
    with pytest.raises(Exception, match=r"x.shape\[1\] is 9"):
        compiled(torch.zeros(3, 9))


def test_sizes_that_depend_on_the_module_are_the_full_ones_for_a_version_that_keeps_it_otherwise(load: Any) -> None:
    tied = Dimension("tied", (8, 16, 24), text="fc_weight.shape[1]")
    ours = replace(layered(), tensors=(replace(X, dimensions=(FREE, tied)), layered().tensors[1]))
    text = guarded(PLAIN, ours.of_inputs())
    model = load(text).ModelNew()
    assert "fc" not in text
    model(torch.zeros(7, 8))
    with pytest.raises(ValueError, match=r"x.shape\[1\] is 16, it must be 8"):
        model(torch.zeros(5, 16))
    model = load(guarded(PLAIN, replace(ours, conditions=("x.shape[0] > fc_weight.shape[0]",)).of_inputs())).ModelNew()
    model(torch.zeros(4, 8))
    with pytest.raises(ValueError, match=r"x.shape\[0\] is 7, it must be 4"):
        model(torch.zeros(7, 8))


def test_guards_are_the_same_from_their_json() -> None:
    turned = replace(X, order=(1, 0), strides=(1, 4))
    for guards in (
        GUARDS,
        layered(),
        Guards((turned,), 1, listed=(("x.shape[0]",), ((3,), (4,))), modes=(("", True),)),
    ):
        assert guards_from_json(guards.to_json()) == guards


def normalized(count: int) -> tuple[str, Guards]:
    """A version that changes `count` buffers, and its guards."""
    names = [f"mean_{at}" for at in range(count)]
    registered = "".join(f'        self.register_buffer("{name}", torch.zeros(8))\n' for name in names)
    source = PLAIN.replace(
        "    def forward", f"    def __init__(self):\n        super().__init__()\n{registered}\n    def forward"
    )
    eight = Dimension("constant", (8, 8, 8), value=8)
    buffers = [TensorGuard(name, name, (eight,), "float32", (0,), held_as="buffer") for name in names]
    return source, Guards((X, *buffers), given=1, changed=tuple(names))


def test_the_text_grows_with_the_tensors_that_are_changed_and_not_with_their_pairs() -> None:
    """A ResNet-101 that trains changes 312 of 627 tensors: its 195,000 pairs were 32 MB of Python."""
    one, two = (len(guarded(*normalized(count))) for count in (40, 80))
    assert two < 2.2 * one


def test_what_is_changed_may_share_memory_with_nothing_else_at_any_call(load: Any) -> None:
    source, guards = normalized(3)
    module = load(guarded(source, guards))
    model, x = module.ModelNew(), torch.zeros(3, 8)
    assert module.admits(model, x) is None
    assert module.admits(model, model.mean_2.expand(3, 8).contiguous()) is None
    own = model.mean_1
    model.mean_1 = model.mean_2.view(8)
    assert module.admits(model, x) == "mean_1 is changed and shares memory with mean_2"
    model.mean_1 = own
    assert module.admits(model, x) is None
    model.mean_0.data = x[1]
    assert module.admits(model, x) == "mean_0 is changed and shares memory with x"
    model.mean_0 = None
    assert "mean_0" in module.admits(model, x)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda x: x.to_sparse(), "layout torch.sparse_coo"),
        (lambda x: x.to_sparse_csr(), "layout torch.sparse_csr"),
        (lambda x: x.to_mkldnn(), "layout torch._mkldnn"),
        (lambda x: torch.nested.nested_tensor([*x]), "is nested"),
    ],
    ids=["sparse", "compressed", "mkldnn", "nested"],
)
@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_what_is_no_dense_tensor_is_refused_with_a_reason(load: Any, made: Any, said: str, changes: bool) -> None:
    """Such a tensor has no strides, or no memory that could be asked for."""
    source, guards = normalized(2) if changes else (PLAIN, GUARDS)
    module = load(guarded(source, guards))
    assert said in module.admits(module.ModelNew(), made(torch.eye(8)[:3]))
    with pytest.raises(ValueError, match="does not hold"):
        module.ModelNew()(made(torch.eye(8)[:3]))


def test_tensors_without_memory_share_none(load: Any) -> None:
    """Two of no elements have the same address."""
    source, guards = normalized(2)
    empty = Dimension("constant", (0, 0, 0), value=0)
    tensors = tuple(replace(each, dimensions=(empty,)) if each is not X else each for each in guards.tensors)
    module = load(guarded(source.replace("torch.zeros(8)", "torch.zeros(0)"), replace(guards, tensors=tensors)))
    assert module.admits(module.ModelNew(), torch.zeros(3, 8)) is None


def test_a_form_is_looked_at_once(load: Any) -> None:
    """What a call of a known form costs is the benchmark's to print, on a machine of its own."""
    module = load(guard_cost.text(12))
    asked = []
    why_not = module.why_not
    module.why_not = lambda *tensors: asked.append(len(tensors)) or why_not(*tensors)
    model = module.ModelNew()
    for rows in (3, 4, 3, 4, 4, 3):
        model(torch.zeros(rows, 8))
    assert asked == [12, 12]
    assert guard_cost.cost(1, "cpu") > 0

"""What a forward may return: taken apart without running any code of a candidate's classes."""

from __future__ import annotations

import collections
import dataclasses
import gc
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from mtmc.evaluate.reference.returned import comparable, describe, fits, flatten, is_plain, undisturbed

ran: list[str] = []


class Pair(NamedTuple):
    first: Any
    second: Any


class Eager(type):
    """A metaclass whose every attribute is computed."""

    def __getattribute__(cls, name: str) -> Any:
        ran.append(name)
        return super().__getattribute__(name)


@dataclasses.dataclass
class Record:
    late: Any
    early: Any


@dataclasses.dataclass
class Slotted:
    __slots__ = ("late",)
    late: Any


class LazyTuple(tuple):
    def __iter__(self) -> Iterator[Any]:
        ran.append("tuple")
        return iter((1, 2))

    def __len__(self) -> int:
        ran.append("len")
        return 2


class LazyList(list):
    def __iter__(self) -> Iterator[Any]:
        ran.append("list")
        return iter([1, 2])

    def __getitem__(self, at: Any) -> Any:
        ran.append("list item")
        return 1


class LazyDict(dict):
    def __getitem__(self, key: Any) -> Any:
        ran.append("dict item")
        return 1

    def items(self) -> Any:
        ran.append("items")
        return [("a", 1)]

    def keys(self) -> Any:
        ran.append("keys")
        return ["a"]


class LazyPair(Pair):
    def __iter__(self) -> Iterator[Any]:
        ran.append("pair")
        return iter((1, 2))


class LazyRecord(Record):
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        ran.append("namespace")
        return {"late": 1, "early": 2}

    def __getattribute__(self, name: str) -> Any:
        ran.append("attribute")
        return super().__getattribute__(name)


class Claims:
    """Says that it is what it is not."""

    @property
    def __class__(self) -> Any:
        ran.append("class")
        return tuple

    def __iter__(self) -> Iterator[Any]:
        ran.append("claims")
        return iter((1, 2))

    def __repr__(self) -> str:
        ran.append("repr")
        return "7"


class Key(str):
    def __str__(self) -> str:
        ran.append("key")
        return "a"

    def __lt__(self, other: Any) -> bool:
        ran.append("order")
        return True


class Made(metaclass=Eager):
    pass


class Agreeing(type):
    """A metaclass by whose word a class is any other."""

    def __hash__(cls) -> int:
        ran.append("hash")
        return hash(tuple)

    def __eq__(cls, other: object) -> bool:
        ran.append("equal")
        return True


class AgreeingTuple(tuple, metaclass=Agreeing):
    pass


class AgreeingKey(str, metaclass=Agreeing):
    def __str__(self) -> str:
        ran.append("agreeing key")
        return "a"


class AgreeingLeaf(metaclass=Agreeing):
    pass


class Number(int):
    def __repr__(self) -> str:
        ran.append("number")
        return "7"


class Agreeable(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        ran.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


def generator() -> Iterator[int]:
    ran.append("generator")
    yield 1


FOREIGN: dict[str, Callable[[], Any]] = {
    "tuple": lambda: LazyTuple(()),
    "list": lambda: LazyList(),
    "dict": lambda: LazyDict(),
    "named tuple": lambda: LazyPair(1, 2),
    "dataclass": lambda: LazyRecord(1, 2),
    "class": Claims,
    "key": lambda: {Key("a"): 1, Key("b"): 2},
    "metaclass": lambda: Made(),
    "tuple by its own word": lambda: AgreeingTuple((1, 2)),
    "key by its own word": lambda: {AgreeingKey("a"): 1},
    "leaf by its own word": AgreeingLeaf,
    "number": lambda: Number(7),
    "tensor": lambda: torch.ones(2).as_subclass(Agreeable),
    "generator": generator,
    "map": lambda: map(ran.append, ["map"]),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_no_code_of_a_candidates_class_runs(name: str) -> None:
    value = FOREIGN[name]()
    ran.clear()
    leaves, structure = flatten((value, value))
    texts = [describe(leaf) for leaf in leaves if type(leaf) is not int]
    assert ran == []
    plain = ["(*, *)", "((), ())", "([], [])", "({}, {})", "((*, *), (*, *))", "({a: *}, {a: *})"]
    refused = all(not fits(structure, each) for each in plain)
    assert refused or (len(texts) == 2 and all("no value that can be compared" in text for text in texts)), structure


def test_a_class_that_is_equal_to_a_tensors_is_no_plain_tensor() -> None:
    assert AgreeingLeaf in (torch.Tensor,)  # as Python sees it
    assert not is_plain(AgreeingLeaf()) and not comparable(AgreeingLeaf())
    assert is_plain(torch.ones(1)) and is_plain(torch.nn.Parameter(torch.ones(1)))


def test_nothing_is_collected_while_a_result_is_taken_apart() -> None:
    class Left:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            ran.append("collected")

    ran.clear()
    with undisturbed():
        Left()
        held = [[] for _ in range(5 * gc.get_threshold()[0])]
        assert ran == [] and held and not gc.isenabled()
    assert gc.isenabled()
    gc.collect()
    assert ran == ["collected"]


def test_order_and_structure_are_kept() -> None:
    leaves, structure = flatten((1, [2, {"b": 4, "a": 3}]))
    assert leaves == [1, 2, 3, 4] and structure == "(*, [*, {a: *, b: *}])"
    assert flatten((1,))[1] != flatten([1])[1]


def test_what_torch_returns_is_a_tuple() -> None:
    assert flatten(torch.ones(2, 3).max(-1))[1] == "(*, *)" and flatten(torch.Size([2]))[1] == "(*)"


@pytest.mark.parametrize(
    ("expected", "given", "same"),
    [
        (Pair(1, 2), Pair(1, 2), True),
        (Pair(1, 2), (1, 2), True),
        ((1, 2), Pair(1, 2), False),
        (Pair(1, 2), collections.namedtuple("Pair", "second first")(1, 2), False),
        (Record(1, 2), Record(1, 2), True),
        (Record(1, 2), {"late": 1, "early": 2}, False),
        ({"late": 1, "early": 2}, Record(1, 2), False),
        (Record(1, (2, 3)), Record(1, [2, 3]), False),
        (Slotted(1), Slotted(2), True),
        (collections.OrderedDict(a=1), {"a": 1}, True),
        ({"a": 1}, collections.OrderedDict(a=1), False),
        ({"<Pair>": 1}, {"": 1}, False),
    ],
)
def test_a_class_of_its_own_passes_where_the_reference_returns_that(expected: Any, given: Any, same: bool) -> None:
    assert fits(flatten(given)[1], flatten(expected)[1]) is same


def test_fields_are_read_in_an_order_of_their_own() -> None:
    assert flatten(Record(1, Pair(2, 3))) == ([2, 3, 1], "@Record{early: <Pair first second>(*, *), late: *}")


def test_leaves() -> None:
    assert describe(7) == "builtins.int 7" and describe(7) != describe(True) != describe("True")
    assert comparable(torch.ones(1)) and comparable(None) and not comparable(object())
    other = object()
    assert describe(other) != describe(object())


def test_modes_that_were_left_open_see_nothing() -> None:
    class Functions(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            ran.append("function")
            return func(*args, **(kwargs or {}))

    class Dispatches(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            ran.append("dispatch")
            return func(*args, **(kwargs or {}))

    target, source = torch.zeros(3), torch.ones(3)
    ran.clear()
    with Functions(), Dispatches():
        with undisturbed():
            target.copy_(source)
            shape = source.shape
        assert ran == [] and shape == (3,) and float(target.sum()) == 3.0 and ran

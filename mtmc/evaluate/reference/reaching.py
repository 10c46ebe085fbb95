"""Which inputs reach the result of a forward, what of them, and whether other than through a lookup, in which only what is
asked for is read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from mtmc.evaluate.reference.pieces import Piece, placed
from mtmc.task.tensors import flat_tensors, storage_key

INDEXED_READS = (
    "embedding",
    "embedding_bag",
    "_embedding_bag",
    "gather",
    "index",
    "index_select",
    "take",
    "_grouped_mm",
)
"""Ops whose first tensor is a table, or has groups of rows that end where numbers in memory say."""
OVERWRITES = (
    *("copy_", "fill_", "zero_", "uniform_", "normal_", "random_", "bernoulli_", "exponential_"),
    *("_foreach_copy_", "_foreach_zero_", "_index_put_impl_"),
    *("masked_fill_", "masked_scatter_", "index_put_", "index_copy_", "index_fill_", "scatter_", "put_"),
)
"""Ops that write numbers of others into their first tensor, and read none of its own; the first ten into all of it."""
_WHOLLY = frozenset(OVERWRITES[:10])
UNDECLARED = frozenset(
    f"aten::{name}"
    for name in (
        *("batch_norm", "_batch_norm_impl_index", "native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"),
        *("batch_norm_update_stats", "batch_norm_gather_stats", "batch_norm_gather_stats_with_counts", "instance_norm"),
    )
)
"""Ops that write running statistics, in training where they are told whether that is, and whose schemas do not say so."""
_SHAPES_ALONE = ("_like", "new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided")
"""Ends of the names of ops that take a tensor's shape and dtype, and none of its numbers."""


class Ways(NamedTuple):
    """Numbers of pieces of inputs, as bits. read: that are read as they are. asked: that are looked up in."""

    read: int = 0
    asked: int = 0

    def __or__(self, other: Ways) -> Ways:
        return Ways(self.read | other.read, self.asked | other.asked)

    def __bool__(self) -> bool:
        return bool(self.read or self.asked)


class Reaching(TorchDispatchMode):
    """While open, follows the numbers of inputs through torch's ops, storage by storage, on fake tensors or real ones. Holds
    no memory.

    A view reads nothing, and an input that comes out as it went in has reached nothing. told: whether an op has given
    numbers to Python, which may go into anything from then on.
    """

    supports_higher_order_operators = True

    def __init__(self, inputs: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._held: dict[int, Any] = {}  # so that no key comes twice
        self._ways: defaultdict[int, Ways] = defaultdict(Ways)
        self._positions: defaultdict[int, set[int]] = defaultdict(set)  # of the inputs in a storage
        self._unread: set[int] = set()  # storages of inputs of whose first numbers nothing is left
        self._pieces: dict[tuple[int, Piece | None], int] = {}  # of inputs that were read: their numbers
        self.told = False
        for at, tensor in enumerate(inputs):
            self._positions[self._key(tensor)].add(at)

    def of(self, tensor: torch.Tensor) -> set[int]:
        """Positions of the inputs whose numbers have reached a tensor otherwise than by being looked up in."""
        return {at for key, _ in self._chosen(self._ways[self._key(tensor)].read) for at in self._positions[key]}

    def depends(self, tensor: torch.Tensor) -> bool:
        """Whether any number of an input may have reached a tensor."""
        return self.told or bool(self._ways[self._key(tensor)])

    def read(self, tensors: Iterable[torch.Tensor]) -> dict[int, list[Piece]]:
        """What of the inputs has reached any of these tensors otherwise than by being looked up in, by storage."""
        bits, found = 0, defaultdict[int, list[Piece]](list)
        for tensor in tensors:
            bits |= self._ways[self._key(tensor)].read
        for key, piece in self._chosen(bits):
            if piece is not None:
                found[key].append(piece)
        return found

    def _chosen(self, bits: int) -> list[tuple[int, Piece | None]]:
        return [each for each, number in self._pieces.items() if bits >> number & 1]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name, made = func.name().rpartition("::")[2].partition(".")[0], flat_tensors(result)
        schema = getattr(func, "_schema", None)  # a higher-order operator has none
        given = _given(schema, args, kwargs or {})
        read = [] if name.endswith(_SHAPES_ALONE) else flat_tensors(_read(name, given))
        found = Ways()
        for at, tensor in enumerate(read):
            ways = self._reads(tensor)
            found |= Ways(0, ways.read | ways.asked) if at == 0 and name in INDEXED_READS else ways
        written = mutated(schema, args, kwargs or {})
        whole = name in _WHOLLY or any(a is not None and a.is_out for a, _ in given)
        self._note(found, {self._key(tensor) for tensor in flat_tensors((args, kwargs))}, made, written, whole)
        self.told = self.told or (not made and not written and bool(found))
        return result

    def _reads(self, tensor: torch.Tensor) -> Ways:
        """What an op reads that reads a tensor."""
        key = self._key(tensor)
        if key not in self._positions or key in self._unread:
            return self._ways[key]
        number = self._pieces.setdefault((key, Piece.of(tensor)), len(self._pieces))
        return self._ways[key] | Ways(1 << number)

    def _note(
        self, found: Ways, given: set[int], made: list[torch.Tensor], written: list[torch.Tensor], whole: bool
    ) -> None:
        """Note what has come to lie in the tensors that an op has made, or written into. given: keys of its arguments:
        what lies there and is not written is a view. whole: whether all of what is written is replaced."""
        for tensor in written:
            key = self._key(tensor)
            if whole and _is_all(tensor):
                self._ways[key] = found
                self._unread.add(key)
            else:
                self._ways[key] |= found
        for tensor in made:
            if (key := self._key(tensor)) not in given:
                self._ways[key] |= found

    def _key(self, tensor: torch.Tensor) -> int:
        """What tells the memory of a tensor from all other, from the first time on that it is asked for."""
        key = storage_key(tensor) if placed(tensor) else -id(tensor)
        if key not in self._held:
            self._held[key] = StorageWeakRef(tensor.untyped_storage()) if key > 0 else tensor
        return key


def _given(schema: Any, args: Any, kwargs: Any) -> list[tuple[Any, Any]]:
    """The arguments of an op of this schema, each with what it is given for it; None for the arguments of an op without."""
    if schema is None:
        return [(None, each) for each in (*args, *kwargs.values())]
    return [(a, args[i] if i < len(args) else kwargs.get(a.name)) for i, a in enumerate(schema.arguments)]


def _is_written(argument: Any) -> bool:
    """Whether an op writes into an argument of its schema."""
    return argument is not None and argument.alias_info is not None and bool(argument.alias_info.is_write)


def _read(name: str, given: list[tuple[Any, Any]]) -> list[Any]:
    """What an op reads of what it is given."""
    adds = any(a is not None and a.name == "accumulate" and value for a, value in given)
    first = 1 if name in OVERWRITES and not adds else 0
    return [value for a, value in given[first:] if a is None or not a.is_out]


def _is_all(tensor: torch.Tensor) -> bool:
    """Whether a tensor has all of its storage."""
    piece = Piece.of(tensor)
    return piece is not None and piece.whole and piece.end - piece.first == tensor.untyped_storage().nbytes()


def mutated(schema: Any, args: Any, kwargs: Any) -> list[Any]:
    """The tensors that an op of this schema writes into, by what it declares or as one of those that do not."""
    given = _given(schema, args, kwargs)
    written = [value for a, value in given if _is_written(a)]
    if schema is not None and schema.name in UNDECLARED:
        named = {a.name: value for a, value in given}
        if all(named.get(flag, True) for flag in ("training", "use_input_stats")):
            written += [named[name] for name in ("running_mean", "running_var")]
    return flat_tensors(written)

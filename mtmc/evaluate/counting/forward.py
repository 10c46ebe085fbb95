"""The count of one forward of a model, whose inputs have the first numbers among its storages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mtmc.evaluate.counting.launches import Launches, Limits
from mtmc.evaluate.counting.tally import Record
from mtmc.evaluate.counting.traffic import count_traffic
from mtmc.task.tensors import flat_tensors


def count_forward(
    model: Any,
    inputs: Sequence[Any],
    limits: Limits | None = None,
    exact: bool = False,
    log: list[Record] | None = None,
    after: Callable[[Launches, Any], None] | None = None,
) -> tuple[list[Record], list[int], Any]:
    """(records, bytes of each storage of the inputs, result) of one forward.

    With fake tensors these storages have the first numbers in the records. after: see `count_traffic`; it is given the
    result too. log, raises: see `count_traffic`.
    """
    tensors = flat_tensors(inputs)
    results: list[Any] = []

    def forward(*given: Any) -> None:
        for tensor in tensors:
            tensor.data_ptr()  # a storage gets its number when it is first asked for its address
        results.append(model(*given))

    sizes = {tensor.untyped_storage()._cdata: int(tensor.untyped_storage().nbytes()) for tensor in tensors}
    look = None if after is None else lambda launches: after(launches, results[0])
    return count_traffic(forward, inputs, limits, exact, log, look), list(sizes.values()), results[0]

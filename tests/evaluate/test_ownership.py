"""Outputs in memory of their own: where the reference's lie so, a version writes its own in the time of the call."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import torch

from mtmc.evaluate.check.layout import dense_places, view
from mtmc.evaluate.check.ownership import owned, written_out
from mtmc.evaluate.measure.flags import Flags
from mtmc.evaluate.measure.host_backend import HostBackend
from mtmc.evaluate.measure.subject import Subject
from mtmc.evaluate.measure.wire import Call, Line

X = torch.arange(24.0).reshape(4, 6)
Z = torch.complex(X, X + 1)
BOTH = torch.zeros(4, 12)

OWN: dict[str, list[Any]] = {
    "new": [X + 1],
    "turned": [(X + 1).t()],
    "parts of one buffer": list(BOTH.view(2, 24).unbind(0)),
    "between each other's rows": list(BOTH.split(6, dim=1)),
    "every other number": [BOTH[:, ::2], BOTH[:, 1::2]],
    "empty": [X[:0].clone(), X[:0].clone()],
    "conjugated": [Z.conj().resolve_conj()],
}
NOT: dict[str, list[Any]] = {
    "input": [X],
    "turned input": [X.t()],
    "part of an input": [X[1:3]],
    "column of an input": [X[:, 2]],
    "repeated": [(X[:1] + 1).expand(8, 6)],
    "windows": [(X.flatten() + 1).unfold(0, 4, 1)],
    "same twice": [BOTH, BOTH],
    "part of another": [BOTH, BOTH[1:, 2:]],
    "left to be conjugated": [(Z * 2).conj()],
    "left to be negated": [(Z * 2).conj().imag],
}


@pytest.mark.parametrize("name", OWN)
def test_what_lies_in_memory_of_its_own_is_left_as_it_is(name: str) -> None:
    leaves = OWN[name]
    assert owned(leaves, [X]) == (True,) * len(leaves)
    assert all(a is b for a, b in zip(written_out(leaves, (True,) * len(leaves), [X]), leaves, strict=True))


@pytest.mark.parametrize("name", NOT)
def test_what_does_not_is_written_out_where_the_reference_does_so(name: str) -> None:
    leaves = NOT[name]
    assert owned(leaves, [X])[-1] is False
    made = written_out(leaves, (True,) * len(leaves), [X])
    assert owned(made, [X]) == (True,) * len(leaves)
    assert all(torch.equal(a, b) for a, b in zip(made, leaves, strict=True))
    as_reference = written_out(leaves, owned(leaves, [X]), [X])
    assert all(a is b for a, b in zip(as_reference, leaves, strict=True))


def test_what_is_no_tensor_and_what_is_of_another_number_is_left_alone() -> None:
    assert owned([None, 3, "text"], [X]) == (False,) * 3
    assert written_out([X], (True, True), [X])[0] is X
    assert written_out([7], (True,), [X]) == [7]


@pytest.mark.parametrize(("own", "copies"), [((True,), 1), ((False,), 0), ((), 0)])
def test_the_copy_is_made_between_the_marks(
    own: tuple[bool, ...], copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a gated call that returns its input."""
    backend, flags, steps = HostBackend(), Flags(), list[str]()
    backend.share(flags)
    pieces = [backend.create(4096) for _ in range(2)]
    ours, theirs = socket.socketpair()
    window = backend.window(pieces[1][0], 4096)
    subject = Subject(Line(theirs), backend, flags, backend.open(pieces[0][0], 4096), window, 4096, [])
    subject._models[0] = lambda x: x
    subject._remembered[0] = type("Nothing", (), {"restore": lambda self, paths: None})()
    mark, made = backend.mark, torch.empty_strided
    monkeypatch.setattr(backend, "mark", lambda: (steps.append("mark"), mark())[1])
    monkeypatch.setattr(torch, "empty_strided", lambda *a, **k: (steps.append("copy"), made(*a, **k))[1])
    [spot], _ = dense_places([X])
    view(pieces[0][1], spot).copy_(X)
    flags.words[0] = 1
    subject.answer(Call(0, [spot], 1, 1, 77, gated=True, own=own))
    assert steps == ["mark", *["copy"] * copies, "mark", "mark"]
    assert torch.equal(view(pieces[1][1], spot), X)
    for end in (ours, theirs):
        end.close()
    for fd, _ in pieces:
        backend.release(fd)

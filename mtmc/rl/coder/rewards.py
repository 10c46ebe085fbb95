"""rewards: of a reply to a request for an edit. Two rewards after AutoTriton (arXiv 2507.05687), and a third.

`rules` reads the reply alone, and is there so that nothing but a kernel pays:

    0.2  the reply gives a whole file, other than the one it was given (`mtmc.agents.coders.editing.reply`)
    0.4  forward launches a Triton kernel of the file, which stores something
    0.4  forward calls torch for no more computations than before, so nothing went back to torch

`execution` is the paper's shaped reward (`mtmc.reward.shaped_reward`, without step decay) of what the evaluator finds, and
-1, as for what does not compile, where the rules are not all kept: such a file is not run.

`asked` is 1 where the file is the recorded version, comments and spaces aside, else 0: of the other two a harmless change
that nobody asked for gets as much as the right one, and a coder soon finds that out.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from mtmc.errors import CoderError
from mtmc.outcome import Outcome
from mtmc.protocols import EditRequest, EvaluationRequest, Evaluator
from mtmc.reward import COMPILE_FAILS, shaped_reward
from mtmc.syntax import parse
from mtmc.tree import source_hash

FORMAT, KERNEL, NO_FALLBACK = 0.2, 0.4, 0.4
WHOLE = FORMAT + KERNEL + NO_FALLBACK
_STORES = ("store", "atomic_")
"""How the functions of triton.language begin that write to memory."""


@dataclass(frozen=True)
class Read:
    """A reply as the rules see it. source: the file it gives, None where it gives none. why: what rule is broken first."""

    source: str | None
    rules: float
    why: str = ""

    @property
    def kept(self) -> bool:
        """Whether all rules are."""
        return self.source is not None and not self.why


def read_reply(text: str, request: EditRequest, truncated: bool = False) -> Read:
    """A reply by the rules. truncated: whether it was cut at the limit of its length."""
    from mtmc.agents.coders.editing.reply import parse_reply

    try:
        source = parse_reply(text, request.source, truncated).source
    except CoderError as error:
        return Read(None, 0.0, " ".join(str(error).split()))
    stores, calls = _forward(source)
    before = _forward(request.source)[1]
    kernel = "" if stores else "forward launches no kernel that stores anything"
    fallback = f"forward calls torch for {calls} computations, before it was {before}" if calls > before else ""
    reward = FORMAT + KERNEL * (not kernel) + NO_FALLBACK * (not fallback)
    return Read(source, reward, kernel or fallback)


def as_recorded(read: Read, child: str) -> float:
    """The reward `asked`. child: the recorded version, a file."""
    return float(read.source is not None and ast.dump(parse(read.source)) == ast.dump(parse(child)))


@dataclass
class Judge:
    """The rewards by rules and by execution, with an evaluator. What was evaluated is not evaluated again.

    Versions are compared with their parents as recorded, where both runtimes are of one kind; else the parent is
    evaluated, too.
    """

    evaluator: Evaluator
    _found: dict[tuple[str, str], Outcome] = field(default_factory=dict)

    def rewards(
        self, replies: Sequence[tuple[str, bool]], requests: Sequence[EditRequest]
    ) -> list[tuple[float, float]]:
        """(rules, execution) of each reply. replies: text, and whether it was cut.

        Raises: EvaluatorError where the evaluator's own means fail.
        """
        read = [read_reply(text, request, cut) for (text, cut), request in zip(replies, requests, strict=True)]
        versions = [
            (each.source, request)
            for each, request in zip(read, requests, strict=True)
            if each.kept and each.source is not None
        ]
        self._evaluate(versions)
        odd = [(request.source, request) for source, request in versions if not self._comparable(source, request)]
        self._evaluate(odd)
        return [(each.rules, self._execution(each, request)) for each, request in zip(read, requests, strict=True)]

    def outcome(self, reply: str, request: EditRequest, truncated: bool = False) -> Outcome | None:
        """What the evaluator found of a reply that `rewards` was asked for; None where a rule is broken."""
        read = read_reply(reply, request, truncated)
        return self._found.get(_key(read.source, request)) if read.kept and read.source is not None else None

    def _evaluate(self, versions: Sequence[tuple[str, EditRequest]]) -> None:
        new = {_key(source, request): (source, request) for source, request in versions}
        for known in self._found:
            new.pop(known, None)
        found = (
            self.evaluator.evaluate([EvaluationRequest(each.task, source) for source, each in new.values()])
            if new
            else []
        )
        self._found.update(zip(new, found, strict=True))

    def _comparable(self, source: str, request: EditRequest) -> bool:
        """Whether a version's runtime can be compared with its parent's as recorded."""
        found, parent = self._found[_key(source, request)], request.outcome
        return not found.ok or (found.runtime_kind, self.evaluator.hardware) == (parent.runtime_kind, request.hardware)

    def _execution(self, read: Read, request: EditRequest) -> float:
        if not read.kept or read.source is None:
            return COMPILE_FAILS
        found = self._found[_key(read.source, request)]
        parent = self._found.get(_key(request.source, request), request.outcome)
        return shaped_reward(found, parent, step=0, decay=0.0)


def _forward(source: str) -> tuple[bool, int]:
    """Whether forward launches a kernel that stores something, and how many computations it leaves to torch."""
    from mtmc.source.calls import forward_calls
    from mtmc.source.structure import Structure

    structure = Structure.of(parse(source))
    calls = forward_calls(structure)
    stores = any(_stores(kernel) for kernel in structure.kernels)
    return stores and any(not call.is_torch for call in calls), sum(call.is_torch for call in calls)


def _stores(kernel: ast.AST) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.startswith(_STORES)
        for node in ast.walk(kernel)
    )


def _key(source: str, request: EditRequest) -> tuple[str, str]:
    return source_hash(request.task.source), source_hash(source)

"""The coder `llm`: a language model makes each edit in one reply, after MTMC's Micro Coding.

A reply that gives no whole file goes back to the model with the reason. A version that failed is fixed by a rule where
one fits, which is free, else by the model, which is shown the diagnosis.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from mtmc.action import Action
from mtmc.agents.coders.candidates import candidate
from mtmc.agents.coders.cuda_page import check_language
from mtmc.agents.coders.rewriter import Rewriter
from mtmc.chat import ChatReply, ChatRequest
from mtmc.errors import CoderError, ConfigError, TaskError
from mtmc.outcome import Cost, Outcome
from mtmc.protocols import AgentContext, Coder, Edit, EditRequest, Observation
from mtmc.task import Task

_log = logging.getLogger(__name__)


class AskingCoder(Coder):
    """What the coders that ask a language model say of themselves and of a version; how they edit is their own."""

    @property
    def asks_model(self) -> bool:
        """It asks the run's language model: a search without one does not start."""
        return True

    @property
    def deterministic(self) -> bool:
        """Another trial of the same action may give another edit."""
        return False

    @property
    def freeform(self) -> bool:
        """An action of the kind "freeform", whose sentence is free text, can be asked for."""
        return True

    @property
    def refines(self) -> bool:
        """It can be shown what its own version takes, and asked for a faster one."""
        return True

    def root(self, task: Task) -> Edit:
        """The reference itself as ModelNew: with a plan where the rewriter can express it, else as text only.

        Raises: CoderError where the reference's text cannot be read.
        """
        return root_edit(task)

    def actions(self, observation: Observation, failures: Sequence[tuple[str | None, Outcome]]) -> list[Action]:
        """What the rewriter finds on a version with a plan, else what the syntax tree shows (`site_actions`)."""
        return model_actions(observation, failures)

    def ahead(self, task: Task, plan: str | None, hardware: str) -> None:
        """As the rewriter's."""
        Rewriter().ahead(task, plan, hardware)

    def guards(self, task: Task) -> str | None:
        """As the rewriter's; None where the task does not export."""
        try:
            return Rewriter().guards(task)
        except TaskError as error:
            _log.warning("nothing is known of what the versions of task %s hold for: %s", task.name, error)
            return None


@dataclass(frozen=True)
class ModelCoder(AskingCoder):
    """A model that is asked for one reply an edit.

    examples: of the kind of optimization in the prompt, 0 or 1. retries: how often a reply that gives no file is answered
    with the reason, so that the model tries again. steps: of the parent's history in the prompt.
    language: that the model writes kernels in: "triton" or "cuda" (CUDA C++).
    """

    examples: int = 1
    retries: int = 1
    steps: int = 4
    language: str = "triton"

    def __post_init__(self) -> None:
        """Raises: ConfigError naming the setting, its value and what it may be."""
        if self.examples not in (0, 1):
            raise ConfigError(f"examples cannot be {self.examples}: use 0 or 1, a page of the playbook has one")
        check_language(self.language)
        for name in ("retries", "steps"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} cannot be {getattr(self, name)}: use 0 or more")

    @property
    def gives_candidates(self) -> bool:
        """A model can be asked several times."""
        return True

    def edit(self, request: EditRequest) -> Edit:
        """The child's source, without a plan. On a repair a rule comes first, then the model.

        Raises: Unusable (a CoderError) where no reply gave a whole new file, BudgetSpent, CoderError where no reply came or
        the model refines no further, ModelError where no model can be used, ConfigError where there is no model.
        """
        fixed = fixed_by_rule(request)
        if fixed is not None:
            return fixed
        if request.context is None:
            raise ConfigError(
                f"there is no model to {_purpose(request)} {request.action.sentence!r}: set model.name (and model.api_base "
                "for a local server), or use coder=rewriter"
            )
        return self._ask(request, request.context)

    def _ask(self, request: EditRequest, context: AgentContext) -> Edit:
        """Ask until a reply gives a file, `1 + retries` times at most, or so many times after all candidates.

        A reply is judged "unusable: why" at once. If a later one of the same conversation gives the file, the earlier
        ones are judged again: "repaired".
        """
        from mtmc.agents.coders.editing.prompt import edit_messages, feedback_messages
        from mtmc.agents.coders.editing.refinement import is_settled
        from mtmc.agents.coders.editing.unusable import Unusable

        messages = edit_messages(request, self.examples, self.steps, self.language)
        problem = Unusable("empty", "no reply came")
        cost, failed = Cost(), list[ChatReply]()
        if request.candidates > 1:
            found = candidate(request, context, ChatRequest(messages, _purpose(request), request.seed), source_of)
            if isinstance(found, Edit):
                return found
            cost, failed, problem = found.cost, [*found.replies], found.problem
            messages = (*messages, *feedback_messages(failed[-1].text, problem))
        for _ in range(self.retries + 1):
            reply = context.complete(ChatRequest(messages, _purpose(request), request.seed))
            cost += reply.cost
            if request.right_source is not None and is_settled(reply.text):
                context.judge(reply, "usable")
                raise CoderError("the model knows nothing that would make its version faster")
            try:
                source = source_of(request, reply)
            except Unusable as error:
                problem = error
                context.judge(reply, f"unusable: {error.why}")
                failed.append(reply)
                messages = (*messages, *feedback_messages(reply.text, error))
                continue
            context.judge(reply, "usable")
            for each in failed:
                context.judge(each, "repaired")
            return Edit(source, None, cost)
        raise Unusable(problem.why, f"the model gave no usable file in {len(failed)} replies; the last: {problem}")


def root_edit(task: Task) -> Edit:
    """The reference as ModelNew, with a plan of torch calls where it exports and the rewriter can write its forward.

    A model can also work on what the rewriter cannot express: then the plan is None.

    Raises: CoderError where the reference's text cannot be read.
    """
    from mtmc.rewrite.exported import export_graph
    from mtmc.rewrite.forward import forward_scope
    from mtmc.rewrite.source import root_source

    try:
        root = Rewriter().root(task)
        forward_scope(task, export_graph(task))
    except (TaskError, CoderError) as error:
        _log.warning("task %s is beyond the rewriter, its root is text only: %s", task.name, error)
        return Edit(root_source(task), None)
    return root


def model_actions(
    observation: Observation, failures: Sequence[tuple[str | None, Outcome]], wider: bool = True
) -> list[Action]:
    """Legal actions for a coder that can edit any version; `STOP` last, keys unique.

    Those of the rewriter on a version with a plan, else what the syntax tree shows (`site_actions`). wider: with a plan
    also the fusions that the syntax tree shows, of more calls at once than the rewriter takes (attention, say).
    """
    from mtmc.hardware import hardware
    from mtmc.optimizations import site_actions

    if observation.plan is not None:
        planned = Rewriter().actions(observation, failures)
        known = {action.sentence for action in planned}
        fusions = [each for each in site_actions(observation.source) if each.kind == "fuse"] if wider else []
        return [*planned[:-1], *(each for each in fusions if each.sentence not in known), *planned[-1:]]
    has_tf32x3 = hardware(observation.hardware).target.startswith("sm_")
    return [each for each in site_actions(observation.source) if has_tf32x3 or each.kind != "precision"]


def fixed_by_rule(request: EditRequest) -> Edit | None:
    """A failed version fixed by a rule of `mtmc.agents.coders.repair`; None where none fits, or this is no repair."""
    if request.feedback is None or request.failed_source is None:
        return None
    from mtmc.agents.coders.repair import fix

    fixed = fix(request.failed_source, request.feedback, request.hardware)
    if fixed is None or fixed.source == request.failed_source:
        return None
    _log.debug("fixed by rule: %s", fixed.what)
    return Edit(fixed.source, None)


def _purpose(request: EditRequest) -> str:
    if request.right_source is not None:
        return "refine"
    return "edit" if request.failed_source is None else "repair"


def source_of(request: EditRequest, reply: ChatReply) -> str:
    """The file that a reply gives. Raises: Unusable, also where it only gives the parent or the right version back."""
    from mtmc.agents.coders.editing.reply import is_same, parse_reply
    from mtmc.agents.coders.editing.unusable import Unusable
    from mtmc.source.inline_words import NotPlain
    from mtmc.source.load_inline import translated

    base = request.failed_source or request.right_source or request.source
    parsed = parse_reply(reply.text, base, reply.truncated)
    try:
        source = translated(parsed.source)
    except NotPlain as error:
        raise Unusable(
            "host code", f"{error}; make kernels with RawKernel of mtmc.cuda, and launch them in forward"
        ) from error
    if is_same(source, request.source):
        raise Unusable("unchanged", "the file given is the previous code, without the optimization that was asked for")
    if request.right_source is not None and is_same(source, request.right_source):
        raise Unusable("unchanged", "the file given is the version that was to be made faster")
    for note in parsed.notes:
        _log.debug("reply %d: %s", reply.id, note)
    return source

"""The coder `auto`: the rewriter where it can, a model where it cannot.

The rewriter makes the edits that it has a rule for, on versions with a plan: free, and right by construction. The model
makes all others (versions without a plan, kinds without a rule, what the rewriter cannot write) and the repairs that no
rule can do.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from mtmc.action import Action
from mtmc.agents.coders.model import ModelCoder, model_actions
from mtmc.agents.coders.rewriter import Rewriter
from mtmc.errors import CoderError, ConfigError
from mtmc.outcome import Outcome
from mtmc.protocols import Edit, EditRequest, Observation

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AutoCoder(ModelCoder):
    """The rewriter first, then a model; settings are those of the model's part, see `ModelCoder`."""

    def actions(self, observation: Observation, failures: Sequence[tuple[str | None, Outcome]]) -> list[Action]:
        """What the rewriter finds on a version with a plan, else what the syntax tree shows (`site_actions`)."""
        return model_actions(observation, failures, wider=False)

    def edit(self, request: EditRequest) -> Edit:
        """The child's source; with a plan where the rewriter wrote it.

        Raises: ConfigError where a model is needed and there is none; else as `ModelCoder.edit`.
        """
        reason = "a repair that no rule can do" if request.failed_source is not None else "this version has no plan"
        known = request.failed_source is None or request.feedback is not None
        if known and request.right_source is None and request.plan is not None:
            try:
                return Rewriter().edit(request)
            except CoderError as error:
                _log.debug("the rewriter leaves %r to the model: %s", request.action.sentence, error)
                reason = str(error) if request.failed_source is None else reason
        try:
            return super().edit(request)
        except ConfigError as error:
            if request.context is None:
                raise ConfigError(f"coder=auto needs a model ({reason}): {error}") from error
            raise

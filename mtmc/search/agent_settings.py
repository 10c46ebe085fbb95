"""AgentSettings: what the agents of a search are told besides the version at hand, and what they may do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from mtmc.chat import ModelSettings
from mtmc.errors import ConfigError
from mtmc.knowledge import from_text


@dataclass(frozen=True)
class AgentSettings:
    """What agents are told and may do.

    profiles: versions that are profiled kernel by kernel, at most: the root, then each that becomes the best, and drafts of
        which an agent asks for it. 0: none.
    memory_tokens: what a question tells of siblings, failures and the best version, and of other runs, in tokens at most.
    knowledge: a file that `mtmc knowledge` has made of other runs; "" for none.
    models: further models by role, each with its name and what else differs from the run's own (`ModelSettings`): "repair"
        for repairs, "strong" for what has failed before; those of any other name make edits, as the run's own does, and
        which of them is asked follows from what each has gained and cost.
    heat: by how much the temperature rises with each failure of the same action on the same version. 0: it stays.
    candidates: replies that a model is asked for an edit, at most: the first that may be right is evaluated, and the next
        only where it fails.
    refinements: how often the model of a trial is shown what its right version takes and asked for a faster one, at most.
    refine_gain: it is asked again where the last time saved this share of the runtime at least, 0 to 1.
    gain: model that says what each action is expected to gain, for strategies that go by that (`Strategy.by_expected`), in
        place of what the policy says: "trained" for the one that comes with mtmc, or a file that `mtmc train gain=boosted`
        wrote; "" for none. gain_spreads: how many times its spread is added to what it expects, so that what nobody is sure
        of is tried earlier; below 0 later.
    """

    profiles: int = 0
    memory_tokens: int = 600
    knowledge: str = ""
    models: Mapping[str, Any] = field(default_factory=dict)
    heat: float = 0.0
    candidates: int = 1
    refinements: int = 0
    refine_gain: float = 0.05
    gain: str = ""
    gain_spreads: float = 0.0

    def __post_init__(self) -> None:
        """Raises: ConfigError naming the setting, its value and what it may be."""
        for name, least in (("profiles", 0), ("memory_tokens", 0), ("refinements", 0), ("candidates", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"agents.{name} cannot be {value!r}: use {least} or more")
        for name in ("heat", "refine_gain"):
            value = getattr(self, name)
            if isinstance(value, bool) or not 0 <= value <= 1:
                raise ConfigError(f"agents.{name} cannot be {value!r}: use 0 to 1")
        if isinstance(self.gain_spreads, bool) or not math.isfinite(self.gain_spreads):
            raise ConfigError(f"agents.gain_spreads cannot be {self.gain_spreads!r}: use a number, 0 for none")
        known = {each.name for each in fields(ModelSettings)} - {"replay", "callbacks", "patience_s"}
        for role, changes in self.models.items():
            if not isinstance(changes, Mapping) or not changes.get("name"):
                raise ConfigError(f"agents.models.{role} cannot be {changes!r}: use {{name: PROVIDER/MODEL, ...}}")
            unknown = sorted(set(changes) - known)
            if unknown:
                raise ConfigError(f"agents.models.{role} has no {unknown[0]!r}: use some of {', '.join(sorted(known))}")
        names = [changes["name"] for changes in self.models.values()]
        if len(set(names)) < len(names):
            raise ConfigError(f"agents.models names a model twice ({', '.join(names)}): give each role one of its own")
        object.__setattr__(self, "models", {role: dict(changes) for role, changes in self.models.items()})

    def knowledge_text(self) -> str:
        """The text of the file of knowledge, "" where none is named. Raises: ConfigError where it cannot be used."""
        if not self.knowledge:
            return ""
        try:
            text = Path(self.knowledge).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            hint = "make it with mtmc knowledge RUN... --out FILE"
            raise ConfigError(f"agents.knowledge={self.knowledge} cannot be read ({error}): {hint}") from error
        from_text(text, self.knowledge)
        return text

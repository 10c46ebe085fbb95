"""AgentSettings: what the agents of a search are told besides the version at hand, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mtmc.errors import ConfigError
from mtmc.knowledge import from_text


@dataclass(frozen=True)
class AgentSettings:
    """What agents are told and may do.

    profiles: versions that are profiled kernel by kernel, at most: the root, then each that becomes the best, and drafts of
        which an agent asks for it. 0: none.
    memory_tokens: what a question tells of siblings, failures and the best version, and of other runs, in tokens at most.
    knowledge: a file that `mtmc knowledge` has made of other runs; "" for none.
    """

    profiles: int = 0
    memory_tokens: int = 600
    knowledge: str = ""

    def __post_init__(self) -> None:
        """Raises: ConfigError naming the setting, its value and what it may be."""
        for name in ("profiles", "memory_tokens"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ConfigError(f"agents.{name} cannot be {value!r}: use 0 or more")

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

"""AgentSettings: what the agents of a search are told besides the version at hand, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass

from mtmc.errors import ConfigError


@dataclass(frozen=True)
class AgentSettings:
    """What agents are told and may do.

    profiles: versions that are profiled kernel by kernel, at most: the root, then each that becomes the best, and drafts of
        which an agent asks for it. 0: none.
    """

    profiles: int = 0

    def __post_init__(self) -> None:
        """Raises: ConfigError naming the setting, its value and what it may be."""
        if isinstance(self.profiles, bool) or not isinstance(self.profiles, int) or self.profiles < 0:
            raise ConfigError(f"agents.profiles cannot be {self.profiles!r}: use 0 or more")

"""llm: the client of language models, whatever provider or local server they are at (through litellm)."""

from __future__ import annotations

from mtmc.agents.llm.client import Client, check_model
from mtmc.errors import NoReply
from mtmc.redaction import redact

__all__ = ["Client", "NoReply", "check_model", "redact"]

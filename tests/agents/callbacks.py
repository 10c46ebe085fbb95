"""A callback for litellm, which takes seconds to load: not loaded by who only collects tests."""

from __future__ import annotations

import threading
from typing import Any

from litellm.integrations.custom_logger import CustomLogger


class Logger(CustomLogger):
    """Notes what litellm tells its callbacks."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []
        self.heard = threading.Event()

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self.told.append(kwargs["messages"][0]["content"])
        self.heard.set()


LOGGER = Logger()

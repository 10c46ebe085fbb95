"""stop: end this line of the search."""

from __future__ import annotations

from mtmc.action import STOP, STOP_KIND, Action
from mtmc.optimizations.version import Version
from mtmc.rewrite.plan import Plan

PAGE = """\
# stop

What it does: nothing; this version is kept as it is and the search goes on elsewhere.

When it pays: when a version is near the roofline of the hardware: more edits cost evaluations and find noise.
When it harms: too early, when a fusion is still open.
"""


class Stop:
    """Always legal, makes nothing."""

    kind = STOP_KIND
    page = PAGE

    def legal(self, version: Version) -> list[Action]:
        """The one stop action."""
        return [STOP]

    def rewrite(self, version: Version, action: Action) -> Plan | None:
        """No new plan."""
        return None

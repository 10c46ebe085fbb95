"""A headless Chromium that looks at pages, without any network."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium to look at the page with")
SAID = "said-by-the-test"


def browse(address: str, milliseconds: int = 2000) -> str:
    """What a browser makes of a page, as text of its elements. milliseconds: of the page's own clock."""
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--window-size=1500,900",
    ]
    with tempfile.TemporaryDirectory(prefix="mtmc-browser-", ignore_cleanup_errors=True) as profile:
        command = [
            str(CHROMIUM),
            *flags,
            "--disable-background-networking",
            f"--user-data-dir={profile}",
            f"--virtual-time-budget={milliseconds}",
            "--dump-dom",
            address,
        ]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout


def asked(path: Path, script: str) -> Any:
    """What a page answers to a script that says `answer = ...`; of a copy without the policy that forbids other scripts."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", path.read_text(encoding="utf-8"))
    said = f'answered.id = "{SAID}"; answered.textContent = JSON.stringify(answer); document.body.append(answered);'
    script = f'let answer; {script}; const answered = document.createElement("pre"); {said}'
    copy = path.with_name(f"asked-{path.name}")
    copy.write_text(text.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    found = re.search(rf'<pre id="{SAID}">(.*?)</pre>', browse(f"file://{copy}"), re.DOTALL)
    assert found is not None, "the script did not get to its end"
    return json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))

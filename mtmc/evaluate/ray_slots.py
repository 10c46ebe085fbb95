"""Slots: the processes of a Ray cluster that evaluate, one a GPU or one a share of a machine's cores, and who is free.

Ray places each slot, and starts it again on another machine where its own is lost. What a lost slot was asked, its asker
asks another one (`Slots.ask`); an answer is taken from one of them only, so that nothing comes back twice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from mtmc.errors import CLOSED, ConfigError, EvaluatorError, MtmcError
from mtmc.evaluate.shared import answer, value_of
from mtmc.protocols import EvaluationRequest, Evaluator
from mtmc.task import Task

POLL_S = 1.0
"""How often the thread that greets slots looks whether it is to end, in seconds."""
CLOSING_S = 10.0
"""Seconds that slots are given to end their processes before Ray ends them."""

_log = logging.getLogger(__name__)


class Worker:
    """What runs in a slot: an evaluator that is opened when it is first asked. From one thread."""

    def __init__(self, opener: Callable[[], Evaluator]) -> None:
        self._opener = opener
        self._evaluator: Evaluator | None = None

    def about(self) -> tuple[str, Any]:
        """See `shared.answer`."""
        try:
            self._opened()
        except MtmcError as error:
            return type(error).__name__, str(error)
        return answer(self._opened(), "about", ())

    def evaluate(self, task: Task, asked: Sequence[tuple[str, int, Any]]) -> tuple[str, Any]:
        """What is found of several versions of a task: (source, seed, depth) of each."""
        return answer(self._opened(), "evaluate", ([EvaluationRequest(task, *each) for each in asked],))

    def baselines(self, task: Task) -> tuple[str, Any]:
        """See `protocols.Evaluator.baselines`."""
        return answer(self._opened(), "baselines", (task,))

    def slow_baselines(self, task: Task) -> tuple[str, Any]:
        """See `protocols.Evaluator.slow_baselines`."""
        return answer(self._opened(), "slow_baselines", (task,))

    def imports(self, source: str) -> tuple[str, Any]:
        """See `protocols.Evaluator.imports`."""
        return answer(self._opened(), "imports", (source,))

    def close(self) -> None:
        """End what the evaluator has started."""
        if self._evaluator is not None:
            self._evaluator.close()

    def _opened(self) -> Evaluator:
        if self._evaluator is None:
            self._evaluator = self._opener()
        return self._evaluator


class Slots:
    """Slots of one kind. From any thread.

    hardware, verifies, profiles: see `protocols.Evaluator`; the same of all, a slot with other hardware is an error.
    """

    def __init__(
        self,
        ray: Any,
        opener: Callable[[], Evaluator],
        count: int,
        resources: dict[str, Any],
        wait_s: float,
        tries: int,
    ) -> None:
        """Raises: EvaluatorError where none is placed within `wait_s`; what the evaluator raises that does not open."""
        self._ray = ray
        self._wait_s, self._tries = wait_s, tries
        self._changed = threading.Condition()
        self._free: deque[Any] = deque()
        self._line: deque[object] = deque()  # of those who wait for a slot
        self._failed: MtmcError | None = None
        self._about: dict[str, Any] | None = None
        self._closed = False
        self.hardware, self.verifies, self.profiles = "", False, False
        kind = ray.remote(Worker).options(**resources, max_restarts=-1)
        self._all = [kind.remote(opener) for _ in range(count)]
        self._greeted = {self._greet(slot): slot for slot in self._all}
        self._asking = 0
        self._thread = threading.Thread(target=self._welcome, name="mtmc-ray-slots", daemon=True)
        self._thread.start()
        try:
            self._put(self._take())
        except BaseException:
            self.close()
            raise
        assert self._about is not None
        self.hardware, self.verifies = self._about["hardware"], self._about["verifies"]
        self.profiles = self._about["profiles"]

    def __len__(self) -> int:
        return len(self._all)

    def ask(self, name: str, *arguments: Any) -> Any:
        """The answer of a free slot; of another where that one is lost on the way.

        Raises: what the evaluator raises; EvaluatorError where the slot was lost `tries` times, where none is free
        again within `wait_s`, and where the cluster is gone.
        """
        with self._changed:
            self._asking += 1
        try:
            return self._ask(name, arguments)
        finally:
            with self._changed:
                self._asking -= 1
                self._changed.notify_all()

    def _ask(self, name: str, arguments: Sequence[Any]) -> Any:
        for _ in range(self._tries):
            slot = self._take()
            lost = True
            try:
                found = self._ray.get(getattr(slot, name).remote(*arguments))
                lost = False
            except self._ray.exceptions.RayActorError as error:
                _log.warning("an evaluator of the cluster is lost, its work is done by another: %s", first_line(error))
                continue
            except self._ray.exceptions.RayError as error:
                raise EvaluatorError(f"the cluster cannot evaluate ({first_line(error)}): see ray status") from error
            finally:
                self._greet_again(slot) if lost else self._put(slot)
            return value_of(*found)
        raise EvaluatorError(
            f"an evaluation was lost {self._tries} times with the process or machine that made it: see that machine's "
            "memory, and evaluator.slots; the run can be resumed"
        )

    def close(self) -> None:
        """End all slots. When this returns nothing of it speaks to Ray any more, which ends a process that does after
        `ray.shutdown`. Idempotent."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        gone = self._ray.exceptions.RayError
        try:
            self._ray.wait([slot.close.remote() for slot in self._all], num_returns=len(self._all), timeout=CLOSING_S)
            for slot in self._all:
                self._ray.kill(slot, no_restart=True)
        except (gone, ConnectionError, ValueError) as error:
            _log.debug("the cluster is gone: %r", error)
        self._thread.join()
        with self._changed:
            self._changed.wait_for(lambda: self._asking == 0, CLOSING_S)

    def _take(self) -> Any:
        """A free slot, for who has waited longest. Raises: EvaluatorError where there is none for `wait_s` although none is
        at work."""
        me = object()
        with self._changed:
            self._line.append(me)
            try:
                self._await_slot(me)
                return self._free.popleft()
            finally:
                self._line.remove(me)
                self._changed.notify_all()

    def _await_slot(self, me: object) -> None:
        waited = time.monotonic()
        while not self._free or self._line[0] is not me:
            if self._failed is not None:
                raise self._failed
            if self._closed:
                raise EvaluatorError(CLOSED)
            if len(self._greeted) < len(self._all):
                waited = time.monotonic()  # one is at work, and will be free
            elif time.monotonic() - waited > self._wait_s:
                raise EvaluatorError(
                    f"the cluster has had no room for an evaluator for {self._wait_s:g} s: start a machine with ray "
                    "start, see ray status, or ask for less (evaluator.cpus); the run can be resumed"
                )
            self._changed.wait(POLL_S)

    def _put(self, slot: Any) -> None:
        with self._changed:
            self._free.append(slot)
            self._changed.notify_all()  # only the first in line may take it

    def _greet(self, slot: Any) -> Any:
        """Ask a slot for what does not change: it answers once Ray has placed it, however often that is undone."""
        return slot.about.options(max_task_retries=-1).remote()

    def _greet_again(self, slot: Any) -> None:
        with self._changed:
            if not self._closed:
                self._greeted[self._greet(slot)] = slot

    def _welcome(self) -> None:
        """Note the slots that have been placed, until the end."""
        while True:
            with self._changed:
                if self._closed or self._failed is not None:
                    return
                asked = list(self._greeted)
            try:
                ready, _ = self._ray.wait(asked, timeout=POLL_S) if asked else ([], [])
                for reference in ready:
                    self._note(reference)
            except Exception as error:
                self._fail(EvaluatorError(f"the cluster is gone ({first_line(error)}): start it again, then resume"))
                return
            if not asked:
                time.sleep(POLL_S / 10)

    def _note(self, reference: Any) -> None:
        try:
            about = value_of(*self._ray.get(reference))
        except MtmcError as error:
            self._fail(error)
            return
        except self._ray.exceptions.RayActorError as error:
            hint = "see that mtmc is installed on each machine, in this version"
            self._fail(EvaluatorError(f"an evaluator cannot be started on the cluster ({cause_of(error)}): {hint}"))
            return
        with self._changed:
            slot = self._greeted.pop(reference)
            if self._about is None:
                self._about = about
            if about == self._about:
                self._free.append(slot)
                self._changed.notify_all()
                return
        names = f"{self._about['hardware']}, {about['hardware']}"
        hint = "set evaluator.accelerator to the one that is meant"
        self._fail(ConfigError(f"runtimes of different GPUs cannot be compared ({names}): {hint}"))

    def _fail(self, error: MtmcError) -> None:
        with self._changed:
            self._failed = error
            self._changed.notify_all()


def cause_of(error: BaseException) -> str:
    """What the error of another process comes down to: the last line of its traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "Error" in line.split(" ")[0]), first_line(error))


def first_line(error: BaseException) -> str:
    """What an error of Ray says first."""
    return (str(error).strip().splitlines() or [repr(error)])[0]

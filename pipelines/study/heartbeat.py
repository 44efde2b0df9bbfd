"""Signs of life of the workers at a study, on any machine.

Optuna's own heartbeat works in relational storages within `optimize` alone. Here a worker counts up an attribute
of its trial, in whatever storage, and the others judge by their own clocks whether the count still moves: no two
machines need to agree on the time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

#: The attribute of a trial: how often its worker has counted, and seconds from one count to the next.
BEAT: Final = "beat"
#: Seconds from one count to the next.
INTERVAL: Final = 10.0
#: Counts that may be missing in a row before a worker is taken for dead.
MISSED: Final = 6


class Heartbeat:
    """Calls ``beat`` with 1, 2, ... every ``interval`` seconds, in a thread, until it is left.

    A beat that fails is left out: the next one comes soon, and whoever works notices by itself.
    """

    def __init__(self, beat: Callable[[int], None], interval: float) -> None:
        self._beat, self._interval = beat, interval
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="heartbeat")

    def _run(self) -> None:
        count = 0
        while not self._over.wait(self._interval):
            count += 1
            try:
                self._beat(count)
            except Exception:
                continue

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        self._thread.join(self._interval)  # one that waits for a lost server ends with the process


class Watch:
    """Which trials have a worker that gave no sign of life for long.

    Time in which nobody looked does not count as silence: after an outage of the storage, or of this process, the
    others first get the chance to be seen.
    """

    def __init__(self, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval, self._clock = interval, clock
        self._seen: dict[int, tuple[Any, float, float]] = {}  # trial -> its count, when looked at, silent seconds
        self._one = threading.Lock()

    def silent(self, trial: FrozenTrial) -> bool:
        """Look at a running trial: whether its worker missed too many counts."""
        count, interval = trial.user_attrs.get(BEAT, (None, self._interval))
        now = self._clock()
        with self._one:
            before, looked, silence = self._seen.get(trial.number, (count, now, 0.0))
            silence = silence + min(now - looked, 2 * interval) if count == before else 0.0
            self._seen[trial.number] = count, now, silence
        return bool(silence >= MISSED * interval)

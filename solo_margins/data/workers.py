"""Signal handling of the worker processes that load data."""

from __future__ import annotations

import os
import signal
from typing import Any


def ignore_group_signals(worker: int) -> None:
    """Let a worker continue when all processes of a run are signalled at once.

    The main process needs its workers for the step that it finishes before it stops. A worker obeys
    the second SIGTERM, with which the main process ends workers that are still alive.
    """
    received: list[int] = []

    def exit_on_second(number: int, frame: Any) -> None:
        if received:
            os._exit(0)
        received.append(number)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, exit_on_second)

"""Jobs of Hydra's multirun: each of them runs as if it had been started alone."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from solo_margins.resolvers import running_program


@dataclass(frozen=True)
class Job:
    """One job of a multirun."""

    number: int
    overrides: tuple[str, ...]

    def __str__(self) -> str:
        return f"job {self.number} ({' '.join(self.overrides)})"

    def failure(self, sentence: str) -> Exception:
        """Return an error that Hydra notes while it goes on with the other jobs.

        After the last job it shows the first such error, as one sentence, and exits with code 1.
        """
        from hydra.errors import CompactHydraException

        return CompactHydraException(sentence)


def current_job() -> Job | None:
    """Return the job of a multirun that this process is running, if it is."""
    hydra = running_program()
    if hydra is None:
        return None
    from hydra.types import RunMode

    if hydra.mode != RunMode.MULTIRUN:
        return None
    return Job(hydra.job.num, tuple(hydra.overrides.task))


@contextmanager
def as_single_run(program: str | Path) -> Iterator[None]:
    """Give a job what a single run of a program finds, and leave nothing to the next job.

    - Relative paths are seen from where the multirun was started, wherever a launcher runs the job.
    - Lightning starts helpers for further devices by the command line of this process, which is
      that of the whole multirun, or of a launcher's worker.
    - Lightning leaves environment variables and a process group; the next job of this process
      would wait for helpers that have gone.
    - Before every job Hydra silences all loggers there are, those of the job before included.
    """
    from hydra.core.hydra_config import HydraConfig

    hydra = HydraConfig.get()
    main = sys.modules["__main__"]
    before = os.getcwd(), dict(os.environ), sys.argv, main.__spec__
    if not hydra.job.chdir:
        os.chdir(hydra.runtime.cwd)
    sys.argv = [str(Path(program).resolve()), *_arguments_of_job(hydra)]
    main.__spec__ = None
    _wake_loggers()
    try:
        yield
    finally:
        _leave_process_group()
        folder, environment, sys.argv, main.__spec__ = before
        os.chdir(folder)
        _restore(environment)


def _arguments_of_job(hydra: Any) -> list[str]:
    arguments = ["--config-name", str(hydra.job.config_name)]
    options = {"command-line": "--config-dir", "main": "--config-path"}
    for source in hydra.runtime.config_sources:
        if source.schema == "file" and source.provider in options:
            arguments += [options[source.provider], str(source.path)]
    return [*arguments, *hydra.overrides.task]


def _wake_loggers() -> None:
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and name.split(".")[0] != "hydra":
            logger.disabled = False


def _leave_process_group() -> None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def _restore(environment: dict[str, str]) -> None:
    for name in set(os.environ) - set(environment):
        del os.environ[name]
    os.environ.update(environment)

"""How a program runs and ends: one sentence and an exit code instead of a stack trace."""

import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from solo_margins.resolvers import running_program

# Exit code of a process that a signal has ended, less the signal's number, as shells have it.
EXIT_BY_SIGNAL = 128


class SetupError(ValueError):
    """A run cannot start as it is configured; the message is one sentence for the user."""


class TrainingStopped(SetupError):
    """All ranks ended a run at once, because it cannot succeed; the message is one sentence."""


class TrainingInterrupted(SystemExit):
    """Ctrl-C or SIGTERM ended a run after its state was saved.

    Not a ``KeyboardInterrupt``: on that, Lightning ends the process by itself.

    Attributes:
        message: one sentence for the user.
        checkpoint: the checkpoint to continue from, if there is one.
        signal: the number of the signal.
    """

    def __init__(self, message: str, checkpoint: Path | None, number: int = signal.SIGINT) -> None:
        # A helper that exits with an error makes Lightning kill the main process.
        super().__init__(0 if is_helper_process() else EXIT_BY_SIGNAL + number)
        self.message = message
        self.checkpoint = checkpoint
        self.signal = number

    def __str__(self) -> str:
        return self.message


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn what a wrong configuration raises during set-up into a :class:`SetupError`."""
    try:
        yield
    except SetupError:
        raise
    except Exception as error:
        sentence = _sentence_for(error)
        if sentence is None:
            raise
        raise SetupError(sentence) from error


def _sentence_for(error: Exception) -> str | None:
    """Return one line for an error that a user can mend, None for any other."""
    family = {f"{kind.__module__}.{kind.__name__}" for kind in type(error).__mro__}
    if "omegaconf.errors.OmegaConfBaseException" in family:
        key = getattr(error, "full_key", None)
        reason = str(error).splitlines()[0]
        return f"The configuration is wrong at {key}: {reason}" if key else reason
    if isinstance(error, AssertionError):
        return _assertion(error)
    if isinstance(error, ImportError):
        # Python's own import errors name the module: those are not the user's to mend.
        return one_line(error) if error.name is None else None
    mendable = (ValueError, NotImplementedError, FileNotFoundError, NotADirectoryError)
    if isinstance(error, (*mendable, PermissionError)) or any(
        name.endswith(".MisconfigurationException") for name in family
    ):
        return one_line(error)
    return None


def _assertion(error: AssertionError) -> str | None:
    """Explain one of solo-learn's checks, most of which carry no message."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    if "solo" not in Path(frame.filename).parts:
        return None
    reason = one_line(error) or f"it requires `{(frame.line or '').removeprefix('assert ')}`."
    return f"solo-learn refuses the configuration: {reason}"


def one_line(error: BaseException) -> str:
    """Return the text of an error without line breaks."""
    return " ".join(str(error).split())


def wants_traces() -> bool:
    """Tell whether the user has asked for full stack traces."""
    return any(
        os.environ.get(name, "") not in ("", "0")
        for name in ("HYDRA_FULL_ERROR", "SOLO_MARGINS_DEBUG")
    )


def run_cli(
    function: Callable[..., Any], *arguments: Any, program: str | Path | None = None
) -> Any:
    """Call a function and end the process as a program should.

    A mistake of the user becomes one sentence on stderr and exit code 1, Ctrl-C one line and exit
    code 130, SIGTERM during a run the same and 143. Anything unexpected keeps its stack trace, as
    does everything with ``HYDRA_FULL_ERROR=1`` or ``SOLO_MARGINS_DEBUG=1``. Where the command line
    is ``--help`` alone, the docstring of the function's module is printed instead.

    In a job of a multirun an error names the job and is left to Hydra, which goes on with the other
    jobs and exits with code 1 after the last one. Ctrl-C ends the multirun.

    Args:
        function: what to call.
        arguments: what to call it with.
        program: the file of the program; by default the one that Python was started with.
    """
    if arguments and arguments[0] in (["-h"], ["--help"]):
        return print(str(sys.modules[function.__module__].__doc__).strip())
    job = current_job()
    if job is not None:
        print(f"\nStarting {job}", flush=True)
    show_warnings()
    try:
        with exit_on_interrupt(), as_single_run(program or sys.argv[0], job):
            return function(*arguments)
    except Exception as error:
        if wants_traces() or not (job or isinstance(error, SetupError)):
            raise
        exit_with(error, job)


def exit_with(error: Exception, job: str | None = None) -> NoReturn:
    """End the process with the sentence of an error and exit code 1.

    Args:
        error: what went wrong.
        job: the job of a multirun that went wrong, which alone is ended.
    """
    if isinstance(error, TrainingStopped) and is_helper_process():
        # All ranks have stopped. One that exits with an error makes Lightning kill the first.
        raise SystemExit(0) from None
    if job is None:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    reason = error if isinstance(error, SetupError) else f"\n{traceback.format_exc()}"
    print(f"Error in {job}: {reason}", file=sys.stderr, flush=True)
    from hydra.errors import CompactHydraException

    # Hydra goes on with the other jobs; after the last one it shows the first such error.
    raise CompactHydraException(one_line(error) or type(error).__name__) from None


@contextmanager
def exit_on_interrupt() -> Iterator[None]:
    """End the process on Ctrl-C outside of a run with one line and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        if is_helper_process():
            # A helper that exits with an error makes Lightning kill the main process.
            raise SystemExit(0) from None
        print("Interrupted.", file=sys.stderr)
        raise SystemExit(EXIT_BY_SIGNAL + signal.SIGINT) from None


def show_warnings() -> None:
    """Let warnings through ``hydra/job_logging: disabled``.

    solo-learn's configurations and ours have it to silence Hydra, and it silences every logger
    there is.
    """
    if "hydra" not in sys.modules:
        # Whoever else has silenced loggers has meant it.
        return
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and name.split(".")[0] != "hydra":
            logger.disabled = False
    ours = logging.getLogger("solo_margins")
    if ours.level == logging.NOTSET:
        ours.setLevel(logging.WARNING)


def is_helper_process() -> bool:
    """Tell whether this process was started by another rank to train along with it."""
    return os.environ.get("LOCAL_RANK", "0") != "0"


# Jobs of Hydra's multirun


def current_job() -> str | None:
    """Return a description of the job of a multirun that this process is running, if it is."""
    hydra = running_program()
    if hydra is None or hydra.mode.name != "MULTIRUN":
        return None
    return f"job {hydra.job.num} ({' '.join(hydra.overrides.task)})"


@contextmanager
def as_single_run(program: str | Path, job: str | None) -> Iterator[None]:
    """Give a job what a single run of a program finds, and leave nothing to the next job.

    - Relative paths are seen from where the multirun was started, wherever a launcher runs the job.
    - Lightning starts helpers for further devices by the command line of this process, which is
      that of the whole multirun, or of a launcher's worker.
    - Lightning leaves environment variables and a process group; the next job of this process
      would wait for helpers that have gone.

    Args:
        program: the file of the program.
        job: the job of a multirun; without one nothing is done.
    """
    if job is None:
        yield
        return
    hydra = running_program()
    main = sys.modules["__main__"]
    folder, environment, before = os.getcwd(), dict(os.environ), (sys.argv, main.__spec__)
    if not hydra.job.chdir:
        os.chdir(hydra.runtime.cwd)
    sys.argv, main.__spec__ = [str(Path(program).resolve()), *_arguments_of_job(hydra)], None
    try:
        yield
    finally:
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            distributed.destroy_process_group()
        sys.argv, main.__spec__ = before
        os.chdir(folder)
        for name in set(os.environ) - set(environment):
            del os.environ[name]
        os.environ.update(environment)


def _arguments_of_job(hydra: Any) -> list[str]:
    arguments = ["--config-name", str(hydra.job.config_name)]
    options = {"command-line": "--config-dir", "main": "--config-path"}
    for source in hydra.runtime.config_sources:
        if source.schema == "file" and source.provider in options:
            arguments += [options[source.provider], str(source.path)]
    return [*arguments, *hydra.overrides.task]

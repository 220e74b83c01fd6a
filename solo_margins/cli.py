"""How a program runs and ends: one sentence and an exit code instead of a stack trace.

A function that finds a setting or a file wrong raises ``ValueError`` with one sentence.
`run_cli` is the only place that catches it.
"""

import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from solo_margins import multirun
from solo_margins.ranks import is_rank_zero

PACKAGE = Path(__file__).parent
# Exit code of a process that a signal has ended, less the signal's number, as shells have it.
EXIT_BY_SIGNAL = 128


class TrainingStopped(ValueError):
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
        # Another rank that exits with an error makes Lightning kill rank 0.
        super().__init__(EXIT_BY_SIGNAL + number if is_rank_zero() else 0)
        self.message = message
        self.checkpoint = checkpoint
        self.signal = number

    def __str__(self) -> str:
        return self.message


def run_cli(function: Callable[..., Any], *arguments: Any, module: str | None = None) -> Any:
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
        module: the program whose configuration is the first argument, as in ``python -m``. A job
            of a multirun that needs several processes is run by it.
    """
    if arguments and arguments[0] in (["-h"], ["--help"]):
        print(str(sys.modules[function.__module__].__doc__).strip())
        return None
    job = multirun.current_job()
    if job is not None:
        print(f"\nStarting {job}", flush=True)
    show_warnings()
    try:
        with exit_on_interrupt():
            if job is not None and module is not None:
                multirun.see_paths_from_the_start()
                if multirun.needs_processes(arguments[0]):
                    return multirun.run_as_a_program(module)
            return function(*arguments)
    except Exception as error:
        end(error, job)


def end(error: Exception, job: str | None) -> NoReturn:
    """End the process with the sentence of an error and exit code 1.

    Args:
        error: what went wrong; one that the user cannot mend is raised again.
        job: the job of a multirun that went wrong, which alone is ended.
    """
    sentence = sentence_of(error)
    if wants_traces() or (sentence is None and job is None):
        raise error
    if isinstance(error, TrainingStopped) and not is_rank_zero():
        # All ranks have stopped, and rank 0 says why. One that exits with an error makes Lightning
        # kill rank 0.
        raise SystemExit(0) from None
    if type(error) is ValueError and not _is_raised_here(error):
        # A wrong setting, or a fault in a user's own method: who wrote neither needs the place.
        sentence = f"{sentence} (SOLO_MARGINS_DEBUG=1 shows where)"
    if job is None:
        print(f"Error: {sentence}", file=sys.stderr)
        raise SystemExit(1) from None
    reason = sentence or f"\n{traceback.format_exc()}"
    print(f"Error in {job}: {reason}", file=sys.stderr, flush=True)
    from hydra.errors import CompactHydraException

    # Hydra goes on with the other jobs; after the last one it shows the first such error.
    raise CompactHydraException(sentence or type(error).__name__) from None


def _is_raised_here(error: BaseException) -> bool:
    """Return whether an error comes from this package, which says what is wrong and where."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    # Not by the name of the module: a program's is "__main__".
    return place is not None and Path(place.tb_frame.f_code.co_filename).is_relative_to(PACKAGE)


def sentence_of(error: Exception) -> str | None:
    """Return one line for an error that a user can mend, None for a fault of the program."""
    if isinstance(error, ImportError):
        # Python's own import errors name the module; ours say what to install.
        return one_line(error) if error.name is None else None
    names = [kind.__name__ for kind in type(error).__mro__]
    if "OmegaConfBaseException" in names:
        reason_of_ours = _behind(error)
        if reason_of_ours is not None:
            return one_line(reason_of_ours)
        key = getattr(error, "full_key", None)
        reason = str(error).splitlines()[0]
        return f"The configuration is wrong at {key}: {reason}" if key else reason
    # A disk, a file or a network that fails is not a fault of the program.
    if isinstance(error, (ValueError, OSError)):
        return one_line(error)
    # What solo-learn's release lacks.
    if isinstance(error, NotImplementedError) and str(error):
        return one_line(error)
    # Lightning's, for settings of the trainer. Most commands do without its import.
    if "MisconfigurationException" in names:
        return one_line(error)
    return None


def _behind(error: BaseException) -> ValueError | None:
    """Return what one of our resolvers has raised, where that is behind an error of OmegaConf's."""
    if type(error).__name__ != "InterpolationResolutionError":
        return None
    inner = error.__context__
    while inner is not None and type(inner).__module__.startswith("omegaconf"):
        inner = inner.__context__
    return inner if isinstance(inner, ValueError) else None


def one_line(error: BaseException) -> str:
    """Return the text of an error without line breaks."""
    return " ".join(str(error).split())


def wants_traces() -> bool:
    """Tell whether the user has asked for full stack traces."""
    names = ("HYDRA_FULL_ERROR", "SOLO_MARGINS_DEBUG")
    return any(os.environ.get(name, "") not in ("", "0") for name in names)


@contextmanager
def exit_on_interrupt() -> Iterator[None]:
    """End the process on Ctrl-C outside of a run with one line and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        if not is_rank_zero():
            # Another rank that exits with an error makes Lightning kill rank 0.
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

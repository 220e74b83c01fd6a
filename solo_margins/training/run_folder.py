"""The folder of a run: which one it is, and that one process alone writes to it."""

import contextlib
import itertools
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from omegaconf import DictConfig

from solo_margins import checkpoints
from solo_margins.cli import TrainingStopped
from solo_margins.config import setting
from solo_margins.files import held_alone
from solo_margins.ranks import is_rank_zero
from solo_margins.same_run import CONTINUED_FROM

# Tells the other ranks of a run the name that rank 0 chose.
RUN_ID_VARIABLE = "SOLO_MARGINS_RUN_ID"
# What writes to the folder of a run, if it is true.
WRITERS = ("checkpoint.enabled", "loggers.tensorboard", "wandb.enabled", "lens.enabled")


@dataclass(frozen=True)
class Run:
    """A run: where it is, and, when it has ended, what it leaves behind."""

    # Its folder: checkpoints, args.json and logs/.
    folder: Path
    # The checkpoint that it is continued from, if any.
    resumed_from: Path | None = None
    # The last checkpoint, or None if none was saved.
    checkpoint: Path | None = None
    # The last value of every metric that was logged.
    metrics: dict[str, float] = field(default_factory=dict)
    # The results file said that it was finished: nothing was run now.
    is_skipped: bool = False

    @property
    def name(self) -> str:
        """The run's id, which is the name of its folder."""
        return self.folder.name

    @property
    def goes_on(self) -> bool:
        """Whether the checkpoint that it is continued from is in its folder."""
        before = self.resumed_from
        return before is not None and before.parent.resolve() == self.folder.resolve()


def choose_run(cfg: DictConfig, kind: str, unnamed: str) -> Run:
    """Return the run of a parsed configuration, with a folder that it may write to.

    Auto-resume continues the newest run of the very same settings in its own folder. An explicit
    ``resume_from_checkpoint`` starts a new folder, unless ``run_id`` names the old one. If it is
    that of another run, auto-resume comes first: it finds this run where it was interrupted. A
    folder that holds another run is never written to, and one that cannot be written ends the run
    now.

    Args:
        cfg: the configuration, as completed by the model's constructor.
        kind: the folder of ``checkpoint.dir`` for such runs, as solo-learn has it.
        unnamed: what a new run is called that nobody has given a name.
    """
    runs = Path(cfg.checkpoint.dir, kind)
    name = chosen_name(cfg)
    resumed = setting(cfg, "resume_from_checkpoint")
    resumed = None if resumed is None else Path(resumed)
    if cfg.auto_resume.enabled and (resumed is None or setting(cfg, CONTINUED_FROM)):
        max_age = timedelta(hours=cfg.auto_resume.max_hours)
        # While a run is going on, its checkpoints come and go; none of them can be read reliably.
        if name:
            _refuse_held(runs / name)
        own = checkpoints.find_same_run(runs / name if name else runs, cfg, max_age)
        if own is not None:
            _refuse_held(own.parent)
            resumed, name, runs = own, own.parent.name, own.parent.parent
    if resumed is not None:
        checkpoints.check_readable(resumed)
    # The other ranks wait for the choice of rank 0.
    writes = is_rank_zero() and _writes(cfg)
    if name is None:
        folder = new_folder(runs / readable_name(cfg, kind, unnamed), claims=writes)
    else:
        folder = runs / name
    run = Run(folder, resumed)
    _refuse_other_run(run, cfg)
    if writes:
        with writing(f"checkpoint.dir={cfg.checkpoint.dir}: {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"x")
    return run


def chosen_name(cfg: DictConfig) -> str | None:
    """Return the ``run_id`` that names a run's folder, None where there is none."""
    shared = None if is_rank_zero() else os.environ.get(RUN_ID_VARIABLE)
    name = shared or setting(cfg, "run_id")
    if name is None:
        return None
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", str(name)):
        allowed = "letters, digits and _ . - are allowed"
        raise ValueError(f"run_id names a folder: {allowed}, got {str(name)!r}.")
    return str(name)


def readable_name(cfg: DictConfig, kind: str, unnamed: str) -> str:
    """Return what a new run's folder is called, unless another run has it: the run's ``name``.

    Args:
        cfg: the configuration; the names that our files give by default are not anybody's choice.
        kind: the folder of such runs.
        unnamed: the name of a run whose name nobody has chosen.
    """
    name = str(cfg.name)
    if name in (kind, "-".join([kind, *data_and_variant(cfg)])):
        name = unnamed
    # What chosen_name() allows, and short enough for any file system.
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name).lstrip(".-")[:100] or kind


def data_and_variant(cfg: DictConfig) -> list[str]:
    """Return the names of a run's data and variant, as far as they have names."""
    data = setting(cfg, "data.name") or setting(cfg, "data.dataset")
    return [str(word) for word in (data, setting(cfg, "variant")) if word is not None]


def new_folder(first: Path, claims: bool) -> Path:
    """Return the folder of a new run, with a number in its name where others have the name.

    Args:
        first: the folder without a number.
        claims: whether to make it; two runs that start at once then get two folders.
    """
    folder = first
    for number in itertools.count(2):
        if not claims and not folder.exists():
            break
        if claims and _made(folder):
            break
        folder = first.with_name(f"{first.name}-{number}")
    return folder


def _made(folder: Path) -> bool:
    """Make a folder, and tell whether it was this process that made it."""
    with writing(f"checkpoint.dir: {folder}"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            folder.mkdir()
        except FileExistsError:
            return False
    return True


def _writes(cfg: DictConfig) -> bool:
    """Tell whether a run writes anything to its folder."""
    return setting(cfg, "loggers.csv", True) or any(setting(cfg, key) for key in WRITERS)


def _refuse_other_run(run: Run, cfg: DictConfig) -> None:
    """Raise ``ValueError`` if the folder of a run holds another one."""
    if run.goes_on or not is_rank_zero() or checkpoints.newest_checkpoint(run.folder) is None:
        return
    resumes = setting(cfg, "auto_resume.enabled", False)
    # Unreadable checkpoints are ignored; auto-resume has warned of them.
    if resumes and all(map(checkpoints.fault_of, checkpoints.newest_first(run.folder))):
        return
    other = " with other settings" if resumes else ""
    raise ValueError(
        f"run_id={run.name}: {run.folder} already holds a run{other}; choose another run_id, or "
        "continue that run with the same settings and auto_resume.enabled=true."
    )


@contextlib.contextmanager
def held_folder(run: Run) -> Iterator[None]:
    """Keep other processes out of the folder of a run for as long as the block runs.

    A job that a scheduler has started again, for example, may find its run still going on. A
    folder that is still empty where the block fails is removed: the next run can have its name.

    Raises:
        ValueError: another process, which the message names, has the folder.
    """
    if not run.folder.is_dir() or not is_rank_zero():
        yield
        return
    try:
        with contextlib.ExitStack() as stack:
            with writing(str(run.folder)):
                holder = stack.enter_context(held_alone(run.folder / ".lock"))
            _refuse_holder(run.folder, holder)
            yield
    except BaseException:
        with contextlib.suppress(OSError):
            run.folder.rmdir()
        raise


def _refuse_held(folder: Path) -> None:
    """Raise ``ValueError`` if another process has the folder of a run now."""
    if (folder / ".lock").exists() and is_rank_zero():
        with writing(str(folder)), held_alone(folder / ".lock") as holder:
            _refuse_holder(folder, holder)


def _refuse_holder(folder: Path, holder: str | None) -> None:
    if holder is not None:
        raise ValueError(
            f"{folder} is in use by another process of this run ({holder}): wait until it has "
            "ended, or end it, and start again."
        )


@contextlib.contextmanager
def writing(what: str) -> Iterator[None]:
    """End the run with one sentence where a file or folder cannot be written."""
    try:
        yield
    except OSError as error:
        sentence = f"{what} cannot be written: {checkpoints.reason_of(error)}."
        raise TrainingStopped(sentence) from error

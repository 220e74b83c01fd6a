"""A run's folder, and the callback that writes its checkpoints."""

import contextlib
import io
import itertools
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from omegaconf import DictConfig, OmegaConf

from solo_margins import checkpoints
from solo_margins.cli import TrainingStopped
from solo_margins.config import setting
from solo_margins.files import held_alone, put_in_place
from solo_margins.ranks import is_rank_zero
from solo_margins.same_run import CONTINUED_FROM
from solo_margins.training.continuing import note_continuation

# Tells the other ranks of a run the name that the first one chose.
RUN_ID_VARIABLE = "SOLO_MARGINS_RUN_ID"
# Others have ways of their own to write a state that is spread over processes.
WRITTEN_BY_ONE = (pl.strategies.SingleDeviceStrategy, pl.strategies.DDPStrategy)


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


def folder_of_runs(cfg: DictConfig) -> Path:
    """Return the folder of ``checkpoint.dir`` that such runs are in, as solo-learn has it."""
    kind = "linear" if "pretrained_feature_extractor" in cfg else cfg.method
    return Path(cfg.checkpoint.dir, kind)


def readable_name(cfg: DictConfig) -> str:
    """Return what a new run's folder is called, unless another run has it: the run's ``name``.

    A name that nobody chose, which is that of the method, the data and the variant, gets the seed;
    a probe's is that of its checkpoint and the data.
    """
    kind, name = folder_of_runs(cfg).name, str(cfg.name)
    data = setting(cfg, "data.name") or setting(cfg, "data.dataset")
    words = [str(word) for word in (data, setting(cfg, "variant")) if word is not None]
    if name in (kind, "-".join([kind, *words])):
        checkpoint = setting(cfg, "pretrained_feature_extractor")
        name = "-".join([*words, f"seed{setting(cfg, 'seed')}"])
        name = f"{Path(checkpoint).stem}-on-{data}" if checkpoint else name
    # What chosen_name() allows, and short enough for any file system.
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name).lstrip(".-")[:100] or kind


def new_folder(cfg: DictConfig, claims: bool) -> Path:
    """Return the folder of a new run, with a number in its name where others have the name.

    Args:
        cfg: the configuration.
        claims: whether to make the folder.
    """
    folder = first = folder_of_runs(cfg) / readable_name(cfg)
    numbers = itertools.count(2)
    with writing(f"checkpoint.dir={cfg.checkpoint.dir}: {first}"):
        while folder.exists() or (claims and not _claim(folder)):
            folder = first.with_name(f"{first.name}-{next(numbers)}")
    return folder


def _claim(folder: Path) -> bool:
    """Make a folder; it belongs to who makes it, so that two runs that start at once get two."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
        return True
    return False


def choose_run(cfg: DictConfig) -> Run:
    """Return the run of a parsed configuration and write its id into ``cfg.run_id``.

    Auto-resume continues the newest run of the very same settings in its own folder. An explicit
    ``resume_from_checkpoint`` starts a new folder, unless ``run_id`` names the old one. If it is
    that of another run, auto-resume comes first: it finds this run where it was interrupted. A
    folder that holds another run is never written to, and one that cannot be written ends the run
    now.

    Args:
        cfg: the configuration, as completed by the model's constructor.
    """
    runs = folder_of_runs(cfg)
    name = chosen_name(cfg)
    path = setting(cfg, "resume_from_checkpoint")
    resumed = None if path is None else Path(path)
    if resumed is not None:
        checkpoints.check_exists(resumed, "resume_from_checkpoint=")
    if cfg.auto_resume.enabled and (resumed is None or setting(cfg, CONTINUED_FROM)):
        own, _ = checkpoints.find_same_run(
            runs / name if name else runs, cfg, timedelta(hours=cfg.auto_resume.max_hours)
        )
        if own is not None:
            resumed, name, runs = own, own.parent.name, own.parent.parent
    if resumed is not None:
        checkpoints.read_checkpoint(resumed, in_place=True)
        fault = checkpoints.fault_of(resumed)
        if fault is not None:
            raise ValueError(f"{resumed} is damaged or not a checkpoint ({fault}).")
    # The other ranks wait for the choice of rank 0.
    leads = is_rank_zero()
    writers = ("checkpoint.enabled", "loggers.tensorboard", "wandb.enabled", "lens.enabled")
    writes = leads and (setting(cfg, "loggers.csv", True) or any(setting(cfg, w) for w in writers))
    run = Run(runs / name if name else new_folder(cfg, claims=writes), resumed)
    refuse_other_run(run, cfg)
    cfg.run_id = run.name if leads else name
    if writes:
        with writing(f"checkpoint.dir={cfg.checkpoint.dir}: {run.folder}"):
            run.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=run.folder) as file:
                file.write(b"x")
    return run


@contextlib.contextmanager
def no_empty_folder(run: Run) -> Iterator[None]:
    """Remove the folder of a run whose set-up fails, so that the next one can have its name."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            run.folder.rmdir()
        raise


@contextlib.contextmanager
def only_process_of(run: Run) -> Iterator[None]:
    """Refuse to write to the folder of a run while another process does.

    A job that a scheduler has started again, for example, may find its run still going on.

    Raises:
        ValueError: another process, which the message names, has the folder.
    """
    if not run.folder.is_dir() or not is_rank_zero():
        yield
        return
    with contextlib.ExitStack() as stack:
        with writing(str(run.folder)):
            holder = stack.enter_context(held_alone(run.folder / ".lock"))
        if holder is not None:
            raise ValueError(
                f"{run.folder} is in use by another process of this run ({holder}): wait until it "
                "has ended, or end it, and start again."
            )
        yield


@contextlib.contextmanager
def writing(what: str) -> Iterator[None]:
    """End the run with one sentence where a file or folder cannot be written."""
    try:
        yield
    except OSError as error:
        sentence = f"{what} cannot be written: {checkpoints.reason_of(error)}."
        raise TrainingStopped(sentence) from error


def refuse_other_run(run: Run, cfg: DictConfig) -> None:
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


class CompleteCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint where it belongs, completely or not at all.

    Lightning's own writes it to the folder for temporary files first, which may be smaller, and
    says nothing of a folder that it may not write to.
    """

    def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
        """Write a checkpoint to a file of this machine, and return when the disk has it."""
        # In memory first: errors of torch's own file writing do not say what happened.
        content = io.BytesIO()
        torch.save(checkpoint, content)
        unfinished = Path(path).with_suffix(".partial")
        try:
            unfinished.write_bytes(content.getbuffer())
            put_in_place(unfinished, Path(path))
        finally:
            unfinished.unlink(missing_ok=True)


class RunCheckpointer(pl.Callback):
    """Saves a run in a folder of its own; takes the place of solo-learn's checkpointer.

    A checkpoint is written completely or not at all, on every rank at once; the one before it is
    kept aside until the next. A resumed run goes on in its folder.

    Args:
        cfg: configuration of the run, with ``checkpoint`` and ``name``.
    """

    def __init__(self, cfg: DictConfig) -> None:
        pl.Callback.__init__(self)
        self.cfg = cfg
        # The run's folder, known when fitting starts.
        self.path: Any = None
        self.last_ckpt: Path | None = None

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Refuse the checkpoint of another run; see :func:`continuing.note_continuation`."""
        note_continuation(self.cfg, self.cfg, Path(trainer.ckpt_path), checkpoint)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Choose the run's folder, the same on every rank, and log to it.

        Not in ``setup``: the trainer does not know yet then which checkpoint it resumes from.
        """
        if self.path is not None:
            return
        # The name that the first rank gives it counts.
        runs = folder_of_runs(self.cfg)
        self.path = runs / trainer.strategy.broadcast(self._run_name(trainer, runs))
        # No "=": a path with one must be quoted twice on Hydra's command line.
        self.ckpt_placeholder = f"{runs.name}-{self.path.name}-ep{{}}.ckpt"
        run = Run(self.path, Path(trainer.ckpt_path) if trainer.ckpt_path else None)
        refuse_other_run(run, self.cfg)
        if run.resumed_from is not None and run.goes_on:
            # It replaces the checkpoint that it started from.
            self.last_ckpt = self.path / run.resumed_from.name
        if trainer.is_global_zero:
            with writing(f"checkpoint.dir: {self.path}"):
                self.path.mkdir(parents=True, exist_ok=True)
            for unfinished in self._own("partial"):
                # Left by a process that was killed.
                unfinished.unlink(missing_ok=True)
        own = csv_logger(self.path)
        has_own = own.root_dir in [getattr(logger, "root_dir", None) for logger in trainer.loggers]
        if setting(self.cfg, "loggers.csv", True) and not has_own:
            trainer.loggers = [*trainer.loggers, own]
        by_one = isinstance(trainer.strategy, WRITTEN_BY_ONE)
        # Another plugin than Lightning's default is somebody's choice.
        if by_one and type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
            trainer.strategy.checkpoint_io = CompleteCheckpointIO()

    def _run_name(self, trainer: Any, runs: Path) -> str:
        name = chosen_name(self.cfg)
        resumed = Path(trainer.ckpt_path).parent if trainer.ckpt_path else None
        if name is None and resumed is not None and resumed.parent.resolve() == runs.resolve():
            same, _ = checkpoints.find_same_run(resumed, self.cfg, timedelta(days=36500))
            name = None if same is None else resumed.name
        return name or new_folder(self.cfg, claims=trainer.is_global_zero).name

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Write the configuration beside the checkpoints, as ``args.json``."""
        if not trainer.is_global_zero:
            return
        # Resolved, so that the file means the same in another process.
        args: Any = OmegaConf.to_container(self.cfg, resolve=True)
        args["run_id"] = self.path.name
        wandb = [x for x in trainer.loggers if type(x).__name__ == "WandbLogger"]
        args["wandb_run_id"] = str(wandb[0].version) if wandb else None
        file = self.path / "args.json"
        with writing(str(file)):
            checkpoints.write_settings(file, args)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Save every ``frequency`` epochs, and after the last one."""
        epoch = trainer.current_epoch
        is_last = trainer.should_stop or epoch + 1 == trainer.max_epochs
        is_last = is_last or 0 < trainer.max_steps <= trainer.global_step
        if epoch % self.cfg.checkpoint.frequency == 0 or is_last:
            # Lightning's progress bar may have reduced the epoch's metrics, on rank 0 alone: the
            # other ranks must do so before any other collective operation.
            _ = trainer.callback_metrics
            self.save(trainer)

    def save(self, trainer: Any, suffix: str = "") -> None:
        """Write a checkpoint and keep the one before it aside; to be called on every rank.

        Collecting the state is a collective operation: calling it on rank 0 alone waits for ever.

        Raises:
            TrainingStopped: on every rank; the checkpoint before it is untouched.
        """
        ckpt = self.path / self.ckpt_placeholder.format(f"{trainer.current_epoch}{suffix}")
        problem = reason = None
        try:
            trainer.save_checkpoint(ckpt, weights_only=False)
        except (OSError, RuntimeError) as error:
            problem, reason = error, checkpoints.reason_of(error)
            # The others wait for this rank at the end of Lightning's function.
            trainer.strategy.barrier("Trainer.save_checkpoint")
        if trainer.world_size > 1:
            # Rank 0 writes, and all of them must stop.
            reason = trainer.strategy.broadcast(reason)
        if reason is not None:
            rest = f"The last good one is {self.last_ckpt}." if self.last_ckpt else "There is none."
            sentence = f"The checkpoint {ckpt} cannot be written: {reason}. {rest}"
            raise TrainingStopped(sentence) from problem
        if trainer.is_global_zero and not self.cfg.checkpoint.keep_prev:
            self._keep_one_before(ckpt)
        self.last_ckpt = ckpt

    def _keep_one_before(self, newest: Path) -> None:
        """Set the checkpoint before the newest aside, and remove all that are older or broken.

        A disk may fail in a way that only reading shows, so the last but one stays until the next.
        Its name does not end with ``.ckpt``: who looks for a run's checkpoint finds the newest.
        """
        before = self.last_ckpt if self.last_ckpt != newest else None
        if before is not None and before.suffix == ".ckpt" and before.exists():
            before = before.replace(before.with_name(before.name + checkpoints.PREVIOUS))
        for old in [*self._own("ckpt"), *self._own("ckpt" + checkpoints.PREVIOUS)]:
            if old not in (newest, before):
                old.unlink(missing_ok=True)

    def _own(self, ending: str) -> list[Path]:
        """Return the files in the run's folder that have the name of one of its checkpoints."""
        name, _ = self.ckpt_placeholder.split("{}")
        pattern = re.compile(re.escape(name) + r"\d+(-\w+)?\." + re.escape(ending))
        return [path for path in self.path.iterdir() if pattern.fullmatch(path.name)]

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Remove what was kept for the case that the run cannot be finished; say where it is."""
        if trainer.is_global_zero and self.path is not None:
            for kept in self.path.glob("*.ckpt" + checkpoints.PREVIOUS):
                kept.unlink(missing_ok=True)
            print(f"Checkpoint: {self.last_ckpt}", flush=True)


def csv_logger(folder: Path) -> Any:
    """Return the logger of a run's folder; each resumed part has a file of its own."""
    return pl.loggers.CSVLogger(folder / "logs", name="", flush_logs_every_n_steps=10)


def checkpointer_of(trainer: Any) -> RunCheckpointer | None:
    """Return the checkpointer of a trainer, None where it saves nothing."""
    return next((c for c in trainer.callbacks if isinstance(c, RunCheckpointer)), None)

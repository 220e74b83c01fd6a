"""Jobs of Hydra's multirun, wherever a launcher runs them."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from solo_margins.resolvers import running_program


def current_job() -> str | None:
    """Return a description of the job of a multirun that this process is running, if it is."""
    hydra = running_program()
    if hydra is None or hydra.mode.name != "MULTIRUN":
        return None
    return f"job {hydra.job.num} ({' '.join(hydra.overrides.task)})"


def see_paths_from_the_start() -> None:
    """Go to the folder that the multirun was started in: a launcher may run a job elsewhere."""
    hydra = running_program()
    if not hydra.job.chdir:
        os.chdir(hydra.runtime.cwd)


def needs_processes(cfg: Any) -> bool:
    """Tell whether Lightning will start, or prepare for, more than one process."""
    strategy = OmegaConf.select(cfg, "strategy", default=None)
    devices = OmegaConf.select(cfg, "devices", default=None)
    one_device = (None, "None", 1, "1", [0])
    return strategy not in (None, "None", "auto") or devices not in one_device


def run_as_a_program(module: str) -> None:
    """Run the current job as a program of its own, which trains on several devices.

    Lightning starts the other ranks by the command line of the process that trains. In this
    process that is the command of the whole multirun, or of a launcher's worker.

    Args:
        module: the program, as in ``python -m <module>``.

    Raises:
        SystemExit: the job was interrupted.
        ValueError: the job failed; it has said why.
    """
    command = [sys.executable, "-m", module, *_arguments_of_job(running_program())]
    # A checkout need not be installed.
    paths = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    process = subprocess.Popen(command, env=environment)
    is_main_thread = threading.current_thread() is threading.main_thread()
    # A launcher that handles SIGTERM itself knows better.
    hands_on = is_main_thread and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if hands_on:
        # Whoever ends this process means the job. Ctrl-C reaches both processes by itself.
        signal.signal(signal.SIGTERM, lambda number, frame: process.send_signal(number))
    try:
        code = _wait(process)
    finally:
        if hands_on:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if code >= 128:
        raise SystemExit(code)
    if code != 0:
        raise ValueError(f"its process ended with code {code}, see its output.")


def _wait(process: "subprocess.Popen[bytes]") -> int:
    """Return the exit code of a process; Ctrl-C lets it finish its step and save."""
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


def _arguments_of_job(hydra: Any) -> list[str]:
    """Return the command line of a single run with the settings of a job."""
    arguments = ["--config-name", str(hydra.job.config_name)]
    options = {"command-line": "--config-dir", "main": "--config-path"}
    for source in hydra.runtime.config_sources:
        if source.schema == "file" and source.provider in options:
            arguments += [options[source.provider], str(source.path)]
    return [*arguments, "hydra.mode=RUN", *hydra.overrides.task]

"""Run everything that needs a GPU, part by part, and write a page that can be sent back.

Every part is a process of its own with a time limit, so that one that fails or hangs does not hide
the others. After each of them ``gpu_check.json`` and ``gpu_check.md`` are written anew.

    bash scripts/gpu_check.sh
    python scripts/gpu_check.py --cpu --parts losses ranks   # the smallest form, without a GPU
"""

import argparse
import contextlib
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from solo_margins.files import complete_file
from solo_margins.results import now

ROOT = Path(__file__).resolve().parents[1]
LAST_LINES = 40
RANKS = re.compile(r"SLURM_|(LOCAL_|NODE_|GROUP_)?RANK$|WORLD_SIZE$|MASTER_|SOLO_MARGINS_RUN_ID$")
MARKS = {"ok": "ok", "failed": "**failed**", "skipped": "skipped", "interrupted": "interrupted"}


@dataclass(frozen=True)
class Part:
    """A part of the check.

    Attributes:
        title: what it does, for the page.
        target: module, function and, after a comma, an argument of it.
        seconds: after which it is ended.
        exact: whether GPUs have to multiply in float32, not in TF32, because numbers are compared.
    """

    title: str
    target: str
    seconds: float = 900.0
    exact: bool = False


PARTS = {
    "environment": Part("The machine", "machine:environment", 120),
    "losses": Part("Losses and gradients against float64 on the CPU", "numbers:losses", exact=True),
    "compile": Part("Losses inside torch.compile", "numbers:compiled", exact=True),
    "float32": Part("Every method in float32", "numbers:methods,32-true", exact=True),
    "bf16": Part("Every method with precision=bf16-mixed", "numbers:methods,bf16-mixed"),
    "fp16": Part("Every method with precision=16-mixed", "numbers:methods,16-mixed"),
    "image_folder": Part("Reading images by PIL", "figures:data,image_folder"),
    "dali": Part("Reading images by DALI", "figures:data,dali"),
    "tensors": Part("Reading images from memory", "figures:data,tensors", exact=True),
    "ranks": Part("Two ranks against one process", "numbers:ranks", exact=True),
    "sync_batchnorm": Part("Shared batch statistics", "numbers:sync_batchnorm", exact=True),
    "resume": Part("Interruption and resume", "figures:resume", 1800, exact=True),
    "benchmark": Part("Time and memory of the loss", "figures:benchmark"),
    "epoch": Part("One epoch of the recipe for CIFAR-10", "figures:epoch", 3600),
    "evaluation": Part("Export, kNN and linear probes", "figures:evaluation", 1800),
}


@dataclass
class Outcome:
    """What became of a part: ``status`` is ok, failed, skipped or interrupted."""

    part: str
    title: str
    status: str = "interrupted"
    seconds: float = 0.0
    reason: str = ""
    note: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    output: list[str] = field(default_factory=list)

    def line(self) -> str:
        """Return the line that is printed when the part has ended."""
        why = f" ({self.reason})" if self.reason else ""
        return f"{self.part:>16}: {self.status}{why}, {self.seconds:.0f} s"


def run_one(name: str, options: argparse.Namespace) -> None:
    """Run a part in this process and leave what it has found in a file."""
    from gpu_parts import Findings, Machine, Skipped

    module, _, call = PARTS[name].target.partition(":")
    function, *arguments = call.split(",")
    machine = Machine("cpu" if options.cpu else "cuda", options.scratch, options.cifar10)
    result: dict[str, Any]
    try:
        parts = importlib.import_module(f"gpu_parts.{module}")
        findings: Findings = getattr(parts, function)(machine, *arguments)
        result = {"status": "failed" if findings.problems else "ok", "note": findings.note}
        result |= {"rows": findings.plain_rows(), "reason": findings.reason()}
    except Skipped as reason:
        result = {"status": "skipped", "reason": str(reason)}
    with complete_file(result_file(options.scratch, name)) as unfinished:
        unfinished.write_text(json.dumps(result))


def result_file(scratch: Path, name: str) -> Path:
    """Return the file in which a part leaves what it has found."""
    return scratch / f"{name}.json"


def run_apart(name: str, options: argparse.Namespace, outcome: Outcome) -> None:
    """Run a part in a process group of its own, at most for its time, and note how it went."""
    words = [sys.executable, "-W", "ignore", __file__, "--one", name]
    words += ["--scratch", str(options.scratch)]
    words += ["--cpu"] if options.cpu else []
    words += ["--cifar10", str(options.cifar10)] if options.cifar10 else []
    # A part starts its own ranks: it must not take itself for a rank of a surrounding job.
    inherited = {key: value for key, value in os.environ.items() if not RANKS.match(key)}
    environment = {**inherited, "SOLO_MARGINS_CACHE": str(options.scratch / "cache")}
    environment |= {"PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore"}
    if options.cpu:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    if PARTS[name].exact:
        environment["NVIDIA_TF32_OVERRIDE"] = "0"
    limit = options.timeout or PARTS[name].seconds
    log = options.scratch / f"{name}.log"
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            words, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            while process.poll() is None and time.monotonic() - began < limit:
                show_progress(name, time.monotonic() - began, log)
                time.sleep(0.1)
            if process.poll() is None:
                outcome.status, outcome.reason = "failed", f"no end after {limit:g} s"
            elif result_file(options.scratch, name).exists():
                found = json.loads(result_file(options.scratch, name).read_text())
                for key, value in found.items():
                    setattr(outcome, key, value)
            else:
                outcome.status = "failed"
                outcome.reason = f"ended with code {process.returncode}"
        finally:
            # Also what it has started and left behind, such as other ranks and workers.
            end_group(process)
            outcome.seconds = round(time.monotonic() - began, 1)
            if outcome.status in ("failed", "interrupted"):
                outcome.output = last_lines(log)
            show_progress("", 0.0, log)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def last_lines(log: Path, number: int = LAST_LINES) -> list[str]:
    """Return the last lines of a file; of a line that was drawn anew, what it showed last."""
    text = log.read_text(errors="replace")
    lines = [line.rstrip().rpartition("\r")[2] for line in text.splitlines()]
    return [line for line in lines if line][-number:]


def show_progress(name: str, seconds: float, log: Path) -> None:
    """Show on a terminal which part runs, for how long, and what it says; clear it without one."""
    if not sys.stdout.isatty():
        return
    said = last_lines(log, 1) if name else []
    width = shutil.get_terminal_size().columns - 1
    line = f"{name:>16}: {seconds:.0f} s  {''.join(said)}" if name else ""
    print(f"\r{line[:width]:{width}}", end="" if name else "\r", flush=True)


def write_pages(folder: Path, content: dict[str, Any], outcomes: list[Outcome]) -> None:
    """Write both files anew, completely or not at all."""
    with complete_file(folder / "gpu_check.json") as unfinished:
        parts = [asdict(outcome) for outcome in outcomes]
        unfinished.write_text(json.dumps({**content, "parts": parts}, indent=1) + "\n")
    with complete_file(folder / "gpu_check.md") as unfinished:
        unfinished.write_text(page(content, outcomes))


def page(content: dict[str, Any], outcomes: list[Outcome]) -> str:
    """Return all outcomes as a page in Markdown."""
    summary = [
        {"part": o.part, "": MARKS[o.status], "seconds": round(o.seconds), "why": o.reason}
        for o in outcomes
    ]
    texts = [f"# GPU check\n\n{content['started']}, `{content['command']}`\n", table(summary)]
    for outcome in outcomes:
        said = f"{MARKS[outcome.status]}. {outcome.note} {outcome.reason}"
        texts += [f"## {outcome.title} (`{outcome.part}`)\n", f"{said.strip()}\n"]
        texts.append(table(outcome.rows))
        if outcome.output:
            texts.append("\n".join(["The last lines:\n", "````text", *outcome.output, "````\n"]))
    return "\n".join(text for text in texts if text)


def table(rows: list[dict[str, Any]]) -> str:
    """Return rows as a table in Markdown, nothing for none."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [
        columns,
        ["---"] * len(columns),
        *([row.get(key, "") for key in columns] for row in rows),
    ]
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells) if rows else ""


def parsed() -> argparse.Namespace:
    """Return the options, or end with a sentence."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--cpu", action="store_true", help="the smallest form, without a GPU")
    parser.add_argument("--cifar10", type=Path, help="folder of CIFAR-10, as data.train_path")
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="folder of the pages")
    parser.add_argument("--timeout", type=float, help="seconds for each part, instead of its own")
    parser.add_argument("--one", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cifar10 is not None and not options.cifar10.is_dir():
        sys.exit(f"Error: --cifar10={options.cifar10} is not an existing folder.")
    if options.cifar10 is not None:
        options.cifar10 = options.cifar10.absolute()
    return options


def has_gpu() -> bool:
    """Tell whether PyTorch sees a GPU; asked elsewhere, lest this process holds on to it."""
    question = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-W", "ignore", "-c", question]).returncode == 0


def main() -> None:
    """Run the parts one after another; end with code 1 if one has failed."""
    options = parsed()
    if options.one:
        run_one(options.one, options)
        return
    if not options.cpu and not has_gpu():
        sys.exit("Error: PyTorch sees no GPU: --cpu runs the smallest form of every part without.")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options.output.mkdir(parents=True, exist_ok=True)
    content = {"started": now(), "command": " ".join(["gpu_check.sh", *sys.argv[1:]])}
    outcomes: list[Outcome] = []
    code = 0
    print(f"{len(options.parts)} parts, each with a line when it has ended:", flush=True)
    with tempfile.TemporaryDirectory(prefix=".gpu_check-", dir=options.output) as scratch:
        options.scratch = Path(scratch).absolute()
        try:
            for name in [part for part in PARTS if part in options.parts]:
                outcomes.append(Outcome(name, PARTS[name].title))
                run_apart(name, options, outcomes[-1])
                print(outcomes[-1].line(), flush=True)
                write_pages(options.output, content, outcomes)
            code = int(any(outcome.status == "failed" for outcome in outcomes))
        except KeyboardInterrupt:
            code = 130
            print("Interrupted: what was done until now is kept.", flush=True)
            write_pages(options.output, content, outcomes)
    print(
        f"Send these back: {options.output / 'gpu_check.md'}, {options.output / 'gpu_check.json'}"
    )
    sys.exit(code)


if __name__ == "__main__":
    main()

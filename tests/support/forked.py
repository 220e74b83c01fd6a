"""Running programs as ``python <program>`` does, without waiting for its imports each time."""

import json
import os
import subprocess
import sys
from pathlib import Path


class ForkedPrograms:
    """A process that has everything imported and forks for each program; see fork_programs.py.

    Args:
        folder: of the programs' output, and where they run unless told otherwise.
        modules: what to import; without any, this package and solo-learn.
        warnings: what programs do with warnings, as after ``python -W``.
    """

    def __init__(self, folder, modules=(), warnings="ignore"):
        self.folder = folder
        self.number = 0
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-W",
                warnings,
                Path(__file__).with_name("fork_programs.py"),
                *modules,
            ],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout.readline() == "ready\n"

    def close(self):
        """End the process."""
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()

    def run(self, words, folder=None, seconds=1800):
        """Run a program in a folder and return its exit code and what it printed."""
        self.number += 1
        output = self.folder / f"output-{self.number}.txt"
        order = {"words": [str(word) for word in words], "folder": str(folder or self.folder)}
        order |= {"output": str(output), "seconds": seconds}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline()), output.read_text()

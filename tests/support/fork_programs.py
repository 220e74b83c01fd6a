"""A process that has everything imported and forks for each program that it is told to run.

Each program runs in a process of its own, as after ``python <program>``, but without the eight
seconds that importing torch, Lightning and timm takes. Orders and answers are lines of JSON.
Arguments name the modules to import; without any, this package and solo-learn are loaded.
"""

import importlib
import json
import os
import runpy
import signal
import sys
import time
import traceback

OURS = ("solo_margins.training", "solo_margins.evaluation.knn", "solo_margins.evaluation.probe")


def _become(order):
    """Run a program in this process and leave it with its exit code."""
    os.setsid()
    os.chdir(order["folder"])
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    program, *arguments = order["words"]
    code = 0
    try:
        if program == "-m":
            program, *arguments = arguments
            sys.argv = [program, *arguments]
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            sys.argv = [program, *arguments]
            sys.path.insert(0, os.path.dirname(program))
            runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _wait(process, seconds):
    """Return the exit code of a process, or None where it had to be ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None


def main():
    """Carry out orders until there are none."""
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        process = os.fork()
        if process == 0:
            _become(order)
        print(json.dumps(_wait(process, order["seconds"])), flush=True)


if __name__ == "__main__":
    for name in sys.argv[1:] or ("hydra", "matplotlib.pyplot", *OURS):
        importlib.import_module(name)
    main()

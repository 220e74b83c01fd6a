"""Real processes: programs of one's own, and functions that talk over gloo, or NCCL on GPUs."""

import os
import signal
import socket
import subprocess
import sys
import traceback
from contextlib import ExitStack, contextmanager

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing


def free_ports(number):
    """Return numbers of ports that nobody uses, all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _enter(rank, world, port, backend, function, arguments, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    try:
        if backend == "nccl":
            torch.cuda.set_device(rank)
        dist.init_process_group(backend, rank=rank, world_size=world)
        results.put((rank, function(rank, *arguments), None))
        dist.barrier()
        dist.destroy_process_group()
    except Exception:
        results.put((rank, None, traceback.format_exc()))


def run_processes(world, function, *arguments, seconds=120, backend="gloo"):
    """Return what ``function(rank, *arguments)`` returns on each rank, in the order of ranks.

    The function must live at the top level of an importable module; results are plain data.
    """
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    [port] = free_ports(1)
    workers = [
        context.Process(
            target=_enter, args=(rank, world, port, backend, function, arguments, results)
        )
        for rank in range(world)
    ]
    for worker in workers:
        worker.start()
    found = {}
    try:
        for _ in workers:
            rank, value, error = results.get(timeout=seconds)
            if error is not None:
                raise AssertionError(f"rank {rank} failed:\n{error}")
            found[rank] = value
    finally:
        for worker in workers:
            worker.join(timeout=10)
            if worker.is_alive():
                worker.kill()
    return [found[rank] for rank in range(world)]


@contextmanager
def started_programs(folder, stderr=subprocess.PIPE):
    """Yield a function that starts Python in a folder; its process group ends with the block."""
    started = []

    def start(*arguments):
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", *map(str, arguments)],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

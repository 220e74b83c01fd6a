"""Ways to stop a run, and what its checkpoints hold."""

import os
import signal
import time

import torch

# Steps of an epoch of the suite's small images.
BATCHES = 4


class Crash(Exception):
    """Stands for anything that ends a process without a word."""


def crash():
    raise Crash


def interrupt(number=signal.SIGINT):
    os.kill(os.getpid(), number)


def loaded(checkpoint):
    return torch.load(checkpoint, weights_only=True)


def steps_of(checkpoint):
    return loaded(checkpoint)["global_step"]


def differences(one, other):
    """Return the names of all weights of two checkpoints that differ in a bit."""
    one, other = (loaded(checkpoint)["state_dict"] for checkpoint in (one, other))
    assert one.keys() == other.keys()
    return [name for name in one if not torch.equal(one[name], other[name])]


def wait_until(condition, process, seconds=120):
    """Wait until something is true of what a process does, and return what it is."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return value

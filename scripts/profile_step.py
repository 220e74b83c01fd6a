"""Profile a step of a real run of ``main_pretrain.py``.

Runs the program in this process with a stopwatch around the parts of a step. What one part calls of
another is counted there alone, so that the parts add up to the whole step. The clock is that of the
main thread's processor time, which other programs do not make longer; what other threads do for the
step, such as reading images by DALI, is a line of its own. The medians of all steps are printed.

    taskset -c 0 python scripts/profile_step.py data.train_path=/path/to/cifar10

Further settings follow as they would follow ``main_pretrain.py``.
"""

import argparse
import contextlib
import functools
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from typing import Any

from solo_margins import training
from solo_margins.resolvers import composed

WARM_UP = 10  # steps that are not counted
# A small network, so that what is not the network shows.
SETTINGS = (
    "data=cifar10",
    "data.num_workers=1",
    "optimizer.batch_size=128",
    "backbone=narrow_resnet10",
    "+backbone.kwargs.width=16",
    "+backbone.kwargs.stem_stride=2",
    "method_kwargs.proj_hidden_dim=512",
    "method_kwargs.pred_hidden_dim=512",
    "limit_val_batches=0",
)
PARTS = {
    "networks": "forward passes of student and teacher",
    "loss": "the loss with margins",
    "classifier": "the online classifier's loss and accuracies",
    "backward": "gradients",
    "optimiser": "the update, with zeroing of gradients and the schedule",
    "teacher": "the momentum update",
    "guard": "whether loss and gradients are finite",
    "callbacks": "all other callbacks",
    "logging": "metrics of the step",
    "batch": "waiting for the batch",
    "loop": "Lightning's loop and what has no name here",
    "threads": "all other threads, such as those of DALI",
}
NETWORK = ("networks", "loss", "backward", "optimiser")
HOOKS = (
    "on_train_batch_start",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_train_batch_end",
)


class Stopwatch:
    """Adds up the processor time of nested parts; the innermost one that runs is charged."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.steps: list[dict[str, float]] = []
        self._running = ["loop"]
        self._since = time.thread_time()
        self._process = time.process_time()

    def switch(self) -> None:
        """Charge the part that runs with the time since the last switch."""
        now = time.thread_time()
        self.seconds[self._running[-1]] += now - self._since
        self._since = now

    def begin(self, part: str) -> None:
        """Begin a part."""
        self.switch()
        self._running.append(part)

    def end(self) -> None:
        """Go on with the part that was interrupted."""
        self.switch()
        self._running.pop()

    def end_step(self) -> None:
        """Keep the times of a step."""
        self.switch()
        process = time.process_time()
        self.seconds["threads"] = process - self._process - sum(self.seconds.values())
        self._process = process
        self.steps.append(self.seconds)
        self.seconds = defaultdict(float)

    def around(self, owner: Any, name: str, part: str) -> None:
        """Charge a part with what a function does."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self.begin(part)
            try:
                return original(*args, **kwargs)
            finally:
                self.end()

        setattr(owner, name, timed)


def attach(watch: Stopwatch, trainer: Any, module: Any) -> None:
    """Put the stopwatch around everything that a step calls; the training has just started."""
    for name, network in module.named_children():
        if name != "classifier":
            watch.around(network, "forward", "networks")
    step_file = sys.modules[type(module).__module__]
    for name in [name for name in vars(step_file) if name.endswith("loss_func")]:
        watch.around(step_file, name, "loss")
    connector, strategy = trainer._logger_connector, trainer.strategy
    parts = {
        # Of these, what is left without networks, loss and logging.
        "loop": [(strategy, "training_step")],
        "classifier": [(module, "_base_shared_step")],
        "teacher": [(module, "on_train_batch_end")],
        "backward": [(strategy, "backward")],
        "optimiser": [
            (strategy.precision_plugin, "optimizer_step"),
            (module, "optimizer_zero_grad"),
            (module, "lr_scheduler_step"),
        ],
        "logging": [
            (module, "log"),
            *((connector, name) for name in vars(type(connector)) if "metrics" in name),
        ],
        "batch": [(type(trainer.fit_loop._data_fetcher), "__next__")],
    }
    for callback in trainer.callbacks:
        part = "guard" if type(callback).__name__ == "NonFiniteGuard" else "callbacks"
        parts.setdefault(part, []).extend((callback, hook) for hook in HOOKS)
    for part, functions in parts.items():
        for owner, name in functions:
            if callable(getattr(owner, name)):
                watch.around(owner, name, part)


def profile(arguments: list[str]) -> list[dict[str, float]]:
    """Train and return the seconds of each part, step by step."""
    watch = Stopwatch()
    programs = training._programs()
    import lightning.pytorch as pl

    class Observer(pl.Callback):
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            attach(watch, trainer, pl_module)

        def on_train_batch_end(self, *_: Any) -> None:
            watch.end_step()

    trainer_class: Any = pl.Trainer
    build = trainer_class.__init__

    # The program asks for the names of its arguments.
    @functools.wraps(build)
    def build_observed(self: Any, *, callbacks: list[Any], **others: Any) -> None:
        build(self, callbacks=[*callbacks, Observer()], **others)

    trainer_class.__init__ = build_observed
    programs.run(composed("mocov3_margin.yaml", arguments))
    return watch.steps[WARM_UP:]


def main() -> None:
    """Print a table of the parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("overrides", nargs="*", help="settings of the run")
    given = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        own = (f"max_steps={WARM_UP + given.steps}", f"checkpoint.dir={folder}")
        steps = profile([*SETTINGS, *own, *given.overrides])
    median = {part: statistics.median(step[part] for step in steps) * 1e3 for part in PARTS}
    whole = sum(median.values())
    rest = whole - sum(median[part] for part in NETWORK)
    print("| part | ms | share | what |\n|---|---:|---:|---|")
    for part, what in PARTS.items():
        print(f"| {part} | {median[part]:.2f} | {median[part] / whole:.0%} | {what} |")
    print(f"| all | {whole:.1f} | | of which {rest:.1f} are not the network |")


if __name__ == "__main__":
    main()

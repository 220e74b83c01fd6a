"""A run's checkpoints: whole or not there, in a folder of its own.

That all ranks write to one folder is tested in tests/host/test_distributed.py.
"""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import lightning.pytorch as pl
import pytest
import torch
from omegaconf import OmegaConf
from solo.args.pretrain import parse_cfg as parse_pretrain_cfg
from solo.methods import METHODS

from solo_margins.checkpoints import PREVIOUS, newest_first
from solo_margins.cli import TrainingStopped
from solo_margins.training.checkpointing import (
    RunCheckpointer,
    checkpointer_of,
    chosen_name,
    new_folder,
    readable_name,
)

pytestmark = pytest.mark.filterwarnings("ignore")

METHOD = "mocov3_margin"


@pytest.fixture
def parsed(raw_config):
    """A configuration with an interpolation, parsed."""

    def make(*overrides, method=METHOD):
        cfg = raw_config(method, *overrides)
        cfg.again = "${seed}"
        return parse_pretrain_cfg(cfg)

    return make


@pytest.fixture
def run(loaders, trainer):
    """Train one batch an epoch and return the callback that saved the checkpoints."""

    def train(cfg, *callbacks, checkpoint=None, **settings):
        quick = {"limit_train_batches": 1, "limit_val_batches": 0, **settings}
        lightning = trainer(cfg, [RunCheckpointer(cfg), *callbacks], **quick)
        lightning.fit(METHODS[cfg.method](cfg), *loaders(cfg), ckpt_path=checkpoint)
        return checkpointer_of(lightning)

    return train


def epoch_of(checkpoint):
    return torch.load(checkpoint, weights_only=True)["epoch"]


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_run_keeps_its_last_epoch_and_its_configuration(parsed, run, tmp_path, capsys):
    checkpointer = run(parsed("checkpoint.frequency=4", "max_epochs=6"))
    assert checkpointer.path.parent == tmp_path / "runs" / METHOD
    saved = checkpointer.last_ckpt
    assert names_in(checkpointer.path) == sorted(["args.json", "logs", saved.name])
    assert epoch_of(saved) == 5
    assert f"Checkpoint: {saved}\n" in capsys.readouterr().out

    args = json.loads((checkpointer.path / "args.json").read_text())
    assert (args["method"], args["run_id"]) == (METHOD, checkpointer.path.name)
    assert (args["seed"], args["again"], args["wandb_run_id"]) == (5, 5, None)


def test_a_name_needs_no_quotes_on_the_command_line(parsed, run):
    name = run(parsed("max_epochs=1")).last_ckpt.name
    assert "=" not in name
    parser = pytest.importorskip("hydra.core.override_parser.overrides_parser")
    [override] = parser.OverridesParser.create().parse_overrides([f"path={name}"])
    assert override.value() == name


def test_runs_have_folders_of_their_own(parsed, run, tmp_path):
    cfg = parsed("max_epochs=1")
    loggers = [pl.loggers.CSVLogger(tmp_path / name) for name in "ab"]
    runs = [run(cfg, logger=logger) for logger in [*loggers, False]]
    assert len({checkpointer.path for checkpointer in runs}) == 3
    assert len(list((tmp_path / "runs").glob("*/*/*.ckpt"))) == 3


def test_a_chosen_name_is_the_folders(parsed, run, tmp_path):
    checkpointer = run(parsed("max_epochs=1", "run_id=chosen"))
    assert checkpointer.path == tmp_path / "runs" / METHOD / "chosen"


CHECKPOINT = "trained_models/mocov3_margin/my_first_try/mocov3_margin-my_first_try-ep19.ckpt"


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"name": "my_first_try"}, "my_first_try"),
        ({"name": "../my first/try, größer"}, "_my_first_try_gr_er"),
        ({"name": "..."}, METHOD),
        ({"name": "x" * 300}, "x" * 100),
        ({"name": f"{METHOD}-digits-pos_curv", "variant": "pos_curv"}, "digits-pos_curv-seed5"),
        ({"name": f"{METHOD}-digits-pos", "variant": "pos_curv"}, f"{METHOD}-digits-pos"),
        ({"name": METHOD}, "digits-seed5"),
        (
            {"name": "linear-digits", "pretrained_feature_extractor": CHECKPOINT},
            "mocov3_margin-my_first_try-ep19-on-digits",
        ),
        ({"name": "mine", "pretrained_feature_extractor": CHECKPOINT}, "mine"),
    ],
)
def test_a_folder_has_a_name_that_people_can_read(settings, name):
    given = {"method": METHOD, "seed": 5, "checkpoint": {"dir": "runs"}, "data": {"name": "digits"}}
    cfg = OmegaConf.create({**given, **settings})
    assert readable_name(cfg) == name
    assert chosen_name(OmegaConf.create({"run_id": name})) == name


def test_runs_that_start_at_once_get_folders_of_their_own(parsed, tmp_path):
    cfg, start = parsed("name=at_once"), threading.Barrier(8)

    def claim(number):
        start.wait()
        return new_folder(cfg, claims=True)

    with ThreadPoolExecutor(8) as pool:
        folders = {folder.name for folder in pool.map(claim, range(8))}
    expected = {"at_once", *(f"at_once-{number}" for number in range(2, 9))}
    assert folders == expected == set(names_in(tmp_path / "runs" / METHOD))


def test_no_folder_where_none_can_be(parsed, tmp_path):
    (tmp_path / "runs").symlink_to(tmp_path / "gone")
    with pytest.raises(TrainingStopped, match=r"runs.*cannot be written: File exists"):
        new_folder(parsed(), claims=True)


def test_earlier_checkpoints_can_be_kept(parsed, run):
    checkpointer = run(parsed("checkpoint.keep_prev=true", "max_epochs=3"))
    kept = newest_first(checkpointer.path)
    assert [epoch_of(path) for path in kept] == [2, 1, 0]


class Watch(pl.Callback):
    """Notes the checkpoints that are there when an epoch begins, and their epochs."""

    def __init__(self):
        self.seen = []

    def on_train_epoch_start(self, trainer, pl_module):
        [saving] = [c for c in trainer.callbacks if isinstance(c, RunCheckpointer)]
        files = newest_first(saving.path)
        self.seen.append([(epoch_of(path), path.name.endswith(PREVIOUS)) for path in files])


def test_the_one_before_is_kept_aside_until_the_run_ends(parsed, run):
    watch = Watch()
    checkpointer = run(parsed("max_epochs=4"), watch)
    assert watch.seen == [
        [],
        [(0, False)],
        [(1, False), (0, True)],
        [(2, False), (1, True)],
    ]
    assert newest_first(checkpointer.path) == [checkpointer.last_ckpt]


class Obstacle(pl.Callback):
    """Puts a folder where the second checkpoint is to be written."""

    def on_train_epoch_start(self, trainer, pl_module):
        if trainer.current_epoch == 1:
            [saving] = [c for c in trainer.callbacks if isinstance(c, RunCheckpointer)]
            name = saving.ckpt_placeholder.format(1)
            (saving.path / name).with_suffix(".partial").mkdir()


def test_a_checkpoint_is_whole_or_not_there(parsed, run, tmp_path):
    cfg = parsed("max_epochs=3", "run_id=chosen")
    with pytest.raises(TrainingStopped) as stopped:
        run(cfg, Obstacle())
    folder = tmp_path / "runs" / METHOD / "chosen"
    [kept] = folder.glob("*.ckpt*")
    assert epoch_of(kept) == 0
    assert str(stopped.value).endswith(
        f"cannot be written: Is a directory. The last good one is {kept}."
    )


def test_what_a_killed_process_was_writing_is_removed(parsed, run, tmp_path):
    cfg = parsed("max_epochs=1", "run_id=chosen")
    folder = tmp_path / "runs" / METHOD / "chosen"
    folder.mkdir(parents=True)
    unfinished = folder / f"{METHOD}-chosen-ep7.partial"
    unfinished.write_bytes(b"half")
    (folder / "another.partial").touch()
    run(cfg)
    assert not unfinished.exists()
    assert (folder / "another.partial").exists()


def test_a_resumed_run_goes_on_in_its_folder(parsed, run, tmp_path):
    # As a run of 3 epochs that was interrupted after the first.
    before = run(parsed("max_epochs=3"), max_epochs=1)
    watch = Watch()
    resumed = run(parsed("max_epochs=3"), watch, checkpoint=before.last_ckpt)
    assert resumed.path == before.path
    assert watch.seen == [[(0, False)], [(1, False), (0, True)]]
    assert newest_first(resumed.path) == [resumed.last_ckpt]
    assert epoch_of(resumed.last_ckpt) == 2


@pytest.mark.parametrize(
    "difference",
    ["seed=6", "method_kwargs.margins.positive_scale=20", "optimizer.lr=0.25"],
)
def test_the_checkpoint_of_another_run_is_refused_unless_it_is_meant(parsed, run, difference):
    before = run(parsed("max_epochs=2"), max_epochs=1)
    key = difference.partition("=")[0]
    with pytest.raises(ValueError, match=f"{key}=.*, now "):
        run(parsed("max_epochs=2", difference), checkpoint=before.last_ckpt)
    meant = parsed("max_epochs=2", difference, "resume_with_changes=true")
    other = run(meant, checkpoint=before.last_ckpt)
    assert other.path != before.path
    assert other.path.parent == before.path.parent
    assert epoch_of(before.last_ckpt) == 0
    assert epoch_of(other.last_ckpt) == 1
    args = json.loads((other.path / "args.json").read_text())
    assert key in args["continued_from"]["settings"]


def test_the_checkpoint_of_a_run_with_another_name_starts_a_new_folder(parsed, run):
    before = run(parsed("max_epochs=2"), max_epochs=1)
    other = run(parsed("max_epochs=2", "name=other"), checkpoint=before.last_ckpt)
    assert other.path != before.path
    assert json.loads((other.path / "args.json").read_text())["continued_from"] is None


def test_a_checkpoint_is_read_for_its_weights_whatever_the_settings(parsed, run, loaders, trainer):
    before = run(parsed("max_epochs=1"))
    cfg = parsed("seed=6", "method_kwargs.margins.positive_scale=20")
    lightning = trainer(cfg)
    module = METHODS[METHOD](cfg)
    lightning.validate(module, loaders(cfg)[1], ckpt_path=before.last_ckpt, verbose=False)


def test_a_trainer_of_ones_own_refuses_another_loss(parsed, run, loaders, trainer):
    before = run(parsed("max_epochs=2"), max_epochs=1)
    quick = {"limit_train_batches": 1, "limit_val_batches": 0}
    cfg = parsed(
        "max_epochs=2", "method_kwargs.margins.positive_scale=20", "checkpoint.enabled=false"
    )
    with pytest.raises(ValueError, match=r"margins\.positive_scale=1, now 20"):
        trainer(cfg, **quick).fit(METHODS[METHOD](cfg), *loaders(cfg), ckpt_path=before.last_ckpt)


@pytest.mark.parametrize("same", ["data.num_workers=1", "wandb.project=other"])
def test_a_run_that_differs_in_logs_or_speed_alone_goes_on(parsed, run, same):
    before = run(parsed("max_epochs=2"), max_epochs=1)
    resumed = run(parsed("max_epochs=2", same), checkpoint=before.last_ckpt)
    assert resumed.path == before.path


def test_checkpoints_can_be_switched_off(parsed, loaders, trainer, tmp_path):
    cfg = parsed("max_epochs=1")
    lightning = trainer(cfg, limit_train_batches=1, limit_val_batches=0)
    lightning.fit(METHODS[METHOD](cfg), *loaders(cfg))
    assert not (tmp_path / "runs").exists()

"""A run's checkpoints and its folder, which no other run has.

That all ranks write to one folder is tested in test_processes.py.
"""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from stopped_runs import BATCHES, loaded, steps_of

from solo_margins import training
from solo_margins.checkpoints import newest_first
from solo_margins.cli import TrainingStopped
from solo_margins.methods.mocov3_margin import MoCoV3Margin
from solo_margins.training.run_folder import chosen_name, new_folder, readable_name

METHOD = "mocov3_margin"


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_run_keeps_its_last_epoch_and_its_configuration(config, tmp_path, capsys):
    result = training.pretrain(
        config(
            "checkpoint.frequency=4",
            "max_epochs=6",
            "gradient_clip_val=${optimizer.lr}",
            "run_id=chosen",
        )
    )
    saved = result.checkpoint
    assert saved.parent == result.folder == tmp_path / "runs" / METHOD / "chosen"
    assert names_in(result.folder) == sorted(["args.json", "logs", saved.name])
    assert loaded(saved)["epoch"] == 5
    assert f"Checkpoint: {saved}\n" in capsys.readouterr().out
    # Its name needs no quotes on the command line.
    [override] = OverridesParser.create().parse_overrides([f"path={saved.name}"])
    assert override.value() == saved.name
    args = json.loads((result.folder / "args.json").read_text())
    assert (args["method"], args["run_id"]) == (METHOD, "chosen")
    assert (args["gradient_clip_val"], args["wandb_run_id"]) == (0.5, None)


@pytest.mark.parametrize("keeps", [True, False])
def test_the_one_before_is_kept_aside_until_the_run_ends(config, before_step, tmp_path, keeps):
    seen = []
    folder = tmp_path / "runs" / METHOD / "chosen"

    def look():
        seen.append([(loaded(path)["epoch"], path.suffix) for path in newest_first(folder)])

    before_step(3 * BATCHES, look)
    settings = ("max_epochs=4", "run_id=chosen", f"checkpoint.keep_prev={keeps}")
    result = training.pretrain(config(*settings))
    left = [loaded(path)["epoch"] for path in newest_first(folder)]
    if keeps:
        assert seen == [[(2, ".ckpt"), (1, ".ckpt"), (0, ".ckpt")]]
        assert left == [3, 2, 1, 0]
    else:
        assert seen == [[(2, ".ckpt"), (1, ".previous")]]
        assert newest_first(folder) == [result.checkpoint]


def test_no_checkpoint_and_no_log_if_so_configured(config):
    off = ("checkpoint.enabled=false", "loggers.csv=false", "max_epochs=1")
    result = training.pretrain(config(*off))
    assert result.checkpoint is None
    assert not result.folder.exists()


@pytest.mark.parametrize(
    ("name", "variant", "folder"),
    [
        ("my_first_try", None, "my_first_try"),
        ("../my first/try, größer", None, "_my_first_try_gr_er"),
        ("...", None, METHOD),
        ("x" * 300, None, "x" * 100),
        (f"{METHOD}-digits-pos_curv", "pos_curv", "unnamed"),
        (f"{METHOD}-digits-pos", "pos_curv", f"{METHOD}-digits-pos"),
        (METHOD, None, "unnamed"),
    ],
)
def test_a_folder_has_a_name_that_people_can_read(name, variant, folder):
    cfg = OmegaConf.create({"name": name, "variant": variant, "data": {"name": "digits"}})
    assert readable_name(cfg, METHOD, "unnamed") == folder
    assert chosen_name(OmegaConf.create({"run_id": folder})) == folder


def test_a_run_without_a_name_is_called_after_what_it_is(config, linear_config):
    checkpoint = training.pretrain(config("max_epochs=1", f"name={METHOD}", "seed=6")).checkpoint
    assert checkpoint.parent.name == "custom-seed6"
    probe = training.linear(linear_config(checkpoint, "max_epochs=1", "name=linear"))
    assert probe.folder.name == f"{checkpoint.stem}-on-custom"


def test_runs_that_start_at_once_get_folders_of_their_own(tmp_path):
    start = threading.Barrier(8)

    def claim(number):
        start.wait()
        return new_folder(tmp_path / "runs" / "at_once", claims=True).name

    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(claim, range(8)))
    expected = {"at_once", *(f"at_once-{number}" for number in range(2, 9))}
    assert folders == expected == set(names_in(tmp_path / "runs"))


def test_no_folder_where_none_can_be(tmp_path):
    (tmp_path / "runs").symlink_to(tmp_path / "gone")
    with pytest.raises(TrainingStopped, match=r"runs"):
        new_folder(tmp_path / "runs" / "one", claims=True)


def test_auto_resume_goes_on_in_the_same_folder(config):
    resume = "auto_resume.enabled=true"
    first = training.pretrain(config("checkpoint.keep_prev=true"))
    # As if it had been killed after its first epoch.
    first.checkpoint.unlink()
    [half] = first.folder.glob("*.ckpt")
    assert steps_of(half) == BATCHES
    # What only says where a run is or how it is watched does not make it another one.
    same = training.pretrain(config(resume, "data.num_workers=1", "wandb.project=other"))
    assert (same.folder, same.resumed_from) == (first.folder, half)
    assert steps_of(same.checkpoint) == 2 * BATCHES
    assert list(same.folder.glob("*.ckpt")) == [same.checkpoint]
    assert names_in(same.folder / "logs") == ["version_0", "version_1"]
    for other in ("seed=6", "method_kwargs.temperature=0.3", "limit_train_batches=2", "name=other"):
        assert training.pretrain(config(resume, "max_steps=1", other)).folder != first.folder


def test_an_explicit_checkpoint_starts_a_folder_of_its_own(config):
    first = training.pretrain(config("max_epochs=1"))
    second = training.pretrain(config(f"resume_from_checkpoint={first.checkpoint}"))
    assert second.folder != first.folder
    assert first.checkpoint.is_file()
    assert steps_of(second.checkpoint) == 2 * BATCHES


def test_a_run_id_names_the_folder_and_protects_it(config):
    training.pretrain(config("run_id=seed5", "max_epochs=1"))
    with pytest.raises(ValueError, match=r"run_id=seed5"):
        training.pretrain(config("run_id=seed5", "max_epochs=1"))
    with pytest.raises(ValueError, match=r"run_id=seed5.* with other settings"):
        training.pretrain(config("run_id=seed5", "seed=6", "auto_resume.enabled=true"))
    with pytest.raises(ValueError, match=r"run_id .*'\.\./x'"):
        training.pretrain(config("run_id=../x"))


def test_a_run_that_cannot_start_leaves_its_name_to_the_next(config, tmp_path):
    with pytest.raises(ValueError, match="barebones"):
        training.pretrain(config("barebones=true", "max_epochs=1"))
    assert not (tmp_path / "runs" / METHOD / "study").exists()


def test_a_checkpoint_is_read_for_its_weights_whatever_the_settings(config, loaders, trainer):
    """In a trainer of one's own, which refuses it for training with another loss."""
    checkpoint = training.pretrain(config("max_epochs=1")).checkpoint
    cfg = OmegaConf.create(json.loads((checkpoint.parent / "args.json").read_text()))
    cfg.method_kwargs.margins.curvature = float("inf")
    cfg.method_kwargs.margins.positive_scale = 20
    cfg.max_epochs, cfg.checkpoint.enabled = 2, False
    lightning, module = trainer(cfg, limit_train_batches=1, limit_val_batches=1), MoCoV3Margin(cfg)
    lightning.validate(module, loaders(cfg)[1], ckpt_path=checkpoint, verbose=False)
    with pytest.raises(ValueError, match=r"margins\.positive_scale=1, now 20"):
        lightning.fit(module, *loaders(cfg), ckpt_path=checkpoint)

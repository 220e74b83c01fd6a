"""Accuracies from the logs of a run, in however many parts it was trained."""

from lens_runs import metrics

from solo_margins.logged_metrics import logged_accuracies


def test_the_parts_of_a_resumed_run_are_joined(tmp_path):
    logs = tmp_path / "logs"
    metrics(logs / "version_0" / "metrics.csv", {0: 10.0, 1: 20.0, 2: 99.0, 3: 99.0})
    metrics(logs / "version_2" / "metrics.csv", {2: 30.0})
    metrics(logs / "version_10" / "metrics.csv", {3: 40.0, 4: 50.0})
    notes = []
    found = logged_accuracies(tmp_path, notes)
    assert found == {"val_acc1": {0: 10.0, 1: 20.0, 2: 30.0, 3: 40.0, 4: 50.0}}
    assert notes == []


def test_logs_in_another_folder_are_found_once(tmp_path, monkeypatch):
    run = tmp_path / "run"
    metrics(run / "mine" / "version_1" / "metrics.csv", {0: 10.0})
    metrics(tmp_path / "theirs" / "metrics.csv", {0: 20.0})
    monkeypatch.chdir(tmp_path)
    for place, accuracy in (("mine", 10.0), ("theirs", 20.0), (str(tmp_path / "theirs"), 20.0)):
        assert logged_accuracies(run, [], place) == {"val_acc1": {0: accuracy}}
    notes = []
    assert logged_accuracies(run, notes, None) == {}
    assert len(notes) == 1

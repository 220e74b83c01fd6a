"""Accuracies from the logs of a run, in however many parts it was trained."""

from lens_runs import metrics

from solo_margins.lens.runs import logged_accuracies


def test_the_parts_of_a_resumed_run_are_joined(tmp_path):
    logs = tmp_path / "logs"
    metrics(logs / "version_0" / "metrics.csv", {0: 10.0, 1: 20.0, 2: 99.0, 3: 99.0})
    metrics(logs / "version_2" / "metrics.csv", {2: 30.0})
    metrics(logs / "version_10" / "metrics.csv", {3: 40.0, 4: 50.0})
    notes = []
    found = logged_accuracies(tmp_path, notes)
    assert found == {"val_acc1": {0: 10.0, 1: 20.0, 2: 30.0, 3: 40.0, 4: 50.0}}
    assert notes == []


def test_a_run_without_logs_has_no_accuracies(tmp_path):
    notes = []
    assert logged_accuracies(tmp_path, notes) == {}
    assert notes == [f"{tmp_path} has no logs/version_*/metrics.csv: its accuracies are unknown."]

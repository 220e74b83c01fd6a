"""The papers' grids: every cell is a recipe and has one place, beside the paper's value."""

import pytest
from reproduce.experiments import EXPERIMENTS
from reproduce.grid import targets_of
from reproduce.papers import LINEAR_PROBING, TRANSFER

from solo_margins.recipes import RECIPES, is_from_paper


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_cell_is_a_recipe_and_every_place_is_taken_once(name):
    entries = EXPERIMENTS[name].entries
    assert entries
    for entry in entries:
        assert entry.cell.variant in RECIPES[entry.cell.method][entry.cell.data]
        if entry.baseline is not None:
            assert entry.baseline in {other.row for other in entries}
    places = [(entry.row, entry.column) for entry in entries]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize(
    ("name", "cells", "with_paper"),
    [("table2", 40, 40), ("table3", 40, 40), ("table4", 40, 40), ("table6", 4, 0)],
)
def test_tables_have_the_papers_cells_and_values(name, cells, with_paper):
    entries = EXPERIMENTS[name].entries
    assert len(entries) == cells
    assert sum(entry.paper is not None for entry in entries) == with_paper


def test_a_table_of_transfer_needs_no_other_pretraining():
    both = (*EXPERIMENTS["table3"].entries, *EXPERIMENTS["table4"].entries)
    targets = targets_of(both)
    assert len(targets) == 40
    assert all(len(names) == 2 for names in targets.values())


def test_the_reported_accuracies_belong_to_cells_of_the_paper():
    cells = {
        (method, data, variant)
        for method, by_data in RECIPES.items()
        for data, variants in by_data.items()
        for variant in variants
        if is_from_paper(method, data, variant) and data != "imagenet"
    }
    assert LINEAR_PROBING.keys() == cells
    assert LINEAR_PROBING["mocov3_margin", "tinyimagenet", "pos"] == (48.273, 0.405)
    assert LINEAR_PROBING["byol_curv", "stl10", "curv"] == (88.051, 0.230)
    assert len(TRANSFER) == 40
    assert TRANSFER["mocov3_margin", "cifar10", "cifar100", "pos"] == (55.113, 0.434)
    assert TRANSFER["simclr_margin", "stl10", "tinyimagenet", "pos_curv"] == (34.280, 0.215)

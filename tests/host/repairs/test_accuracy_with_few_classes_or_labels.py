"""Accuracies of few classes, and of images of which some have no label."""

import pytest
import torch
from solo.methods import base, linear
from solo.utils import metrics

LOGITS = torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
everywhere = pytest.mark.parametrize("module", [metrics, base, linear], ids=lambda m: m.__name__)


@everywhere
def test_ranks_end_at_the_number_of_classes(module):
    top1, top5 = module.accuracy_at_k(LOGITS, torch.tensor([0, 1, 2, 2]), top_k=(1, 5))
    assert (top1.item(), top5.item()) == (50, 100)


@everywhere
def test_images_without_a_label_do_not_count(module):
    [top1] = module.accuracy_at_k(LOGITS, torch.tensor([0, -1, 2, -1]), top_k=(1,))
    assert top1.item() == 50


def test_without_any_label_the_accuracy_is_zero():
    top1, top3 = metrics.accuracy_at_k(LOGITS, torch.full((4,), -1), top_k=(1, 3))
    assert (top1.item(), top3.item()) == (0, 0)


def test_other_accuracies_are_as_before():
    targets = torch.tensor([0, 1, 2, 2])
    assert [a.item() for a in metrics.accuracy_at_k(LOGITS, targets, (1, 2, 3))] == [50, 75, 100]

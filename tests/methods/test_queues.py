"""Which vectors methods compare: neighbours, keys and queues of the other view, groups of images.

These run without solo-learn's repository, whose classes the methods need.
"""

import pytest
import torch
from torch.nn.functional import normalize

from solo_margins.methods.queues import (
    changed_in_groups,
    compared_with_neighbours,
    compared_with_queues,
    neighbours_then_enqueue,
)

IMAGES, WIDTH, ENTRIES = 4, 5, 12


def vectors(*shape, seed=0):
    return normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


class Queue:
    """A queue of one process, as NNCLR describes it."""

    def __init__(self):
        self.queue = vectors(ENTRIES, WIDTH, seed=1)
        self.queue_y = torch.arange(ENTRIES)

    def find_nn(self, z):
        indexes = (z @ self.queue.T).argmax(1)
        return indexes, self.queue[indexes]

    def dequeue_and_enqueue(self, z, y):
        self.queue[: len(z)] = z
        self.queue_y[: len(y)] = y


@pytest.fixture
def queue():
    return Queue()


def test_both_views_are_looked_up_before_the_first_one_enters_the_queue(queue):
    z1, z2 = (vectors(IMAGES, WIDTH, seed=seed) for seed in (2, 3))
    before = queue.queue.clone()
    found = [before[(z @ before.T).argmax(1)] for z in (z1, z2)]
    targets = torch.full((IMAGES,), 50)
    neighbours1, neighbours2, _ = neighbours_then_enqueue(queue, z1, z2, targets)
    assert torch.equal(neighbours1, found[0])
    assert torch.equal(neighbours2, found[1])
    assert not torch.equal(neighbours1, neighbours2)
    assert torch.equal(queue.queue[:IMAGES], z1)
    assert torch.equal(queue.queue[IMAGES:], before[IMAGES:])
    assert torch.equal(queue.queue_y[:IMAGES], targets)


def test_the_accuracy_is_that_of_the_first_views_neighbours(queue):
    entries = torch.tensor([7, 3, 9, 5])
    z1, z2 = queue.queue[entries], queue.queue[entries.flip(0)]
    targets = torch.tensor([7, 3, 9, 0])
    _, _, accuracy = neighbours_then_enqueue(queue, z1, z2, targets)
    assert accuracy.item() == 0.75


def test_predictions_are_compared_with_the_neighbours_of_the_other_view():
    assert compared_with_neighbours(["p1", "p2"], ["of 1", "of 2"]) == [
        ("p1", "of 2"),
        ("p2", "of 1"),
    ]


def test_queries_are_compared_with_keys_and_queue_of_the_other_view():
    queries, keys = vectors(2, IMAGES, WIDTH, seed=4), vectors(2, IMAGES, WIDTH, seed=5)
    queues = vectors(2, WIDTH, ENTRIES, seed=6)
    before = queues.clone()
    compared = compared_with_queues([*queries], [*keys], queues)
    # What is computed later is not changed by what enters the queue meanwhile.
    queues.zero_()
    expected = [(queries[0], keys[1], before[1]), (queries[1], keys[0], before[0])]
    for triple, expected_triple in zip(compared, expected, strict=True):
        assert all(map(torch.equal, triple, expected_triple))


@pytest.mark.parametrize("size", [2, 3, 12])
def test_groups_hold_the_same_images_of_all_views_and_every_image_once(size):
    images = 12
    numbers = torch.arange(images, dtype=torch.float64)[:, None]
    views = [numbers, numbers + 100, numbers + 200]
    groups = []

    def mark(group):
        groups.append(group.flatten())
        # Depends on the image and on those beside it.
        return (group - group[0] + 1000 * group).float()

    results = changed_in_groups(views, size, mark)
    of_first, *of_others = (groups[place :: len(views)] for place in range(len(views)))
    assert all(len(group) == size for group in groups)
    assert torch.equal(torch.cat(of_first).sort().values, numbers.flatten())
    for number, of_other in enumerate(of_others, 1):
        for group, other in zip(of_first, of_other, strict=True):
            assert torch.equal(group + 100 * number, other)
    for place, view in enumerate(views):
        assert results[place].dtype == view.dtype
        for group in groups[place :: len(views)]:
            changed = results[place][(group - 100 * place).long()].flatten()
            assert torch.equal(changed, group - group[0] + 1000 * group)


def test_groups_are_drawn_anew():
    views = [torch.arange(24.0)[:, None]]
    torch.manual_seed(0)
    once, again = (changed_in_groups(views, 4, lambda group: group - group.mean()) for _ in "ab")
    assert not torch.equal(once[0], again[0])

"""Scalings as somebody has them in a package."""

import torch


def times(angle, q, factor=1.0):
    return torch.full_like(angle, factor)


class Focal:
    def __init__(self, power):
        self.power = power

    def __call__(self, angle, q):
        return (1 - q) ** self.power


def of_angles_alone(angle):
    return angle


def a_number(angle, q):
    return 1.0

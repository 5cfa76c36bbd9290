"""A warm-up changes nothing: neither the network nor what comes of training it."""

import copy
import logging

import pytest
import torch
from torch import nn

import arrn
from arrn.data import Augmentation, Normalisation
from arrn.runs.preparing import warming_up
from arrn.training import Recipe, TrainingStep
from small_runs import TINY


def make_step(network: nn.Module) -> TrainingStep:
    return TrainingStep(network, Augmentation(Normalisation((0.5,) * 3, (0.5,) * 3)), Recipe(), 1, seed=0)


def test_a_copy_takes_the_step() -> None:
    model = arrn.create_model("arrn", **TINY)
    before = copy.deepcopy(model.state_dict())
    stepped: list[TrainingStep] = []

    def keep(network: nn.Module) -> TrainingStep:
        stepped.append(make_step(network))
        return stepped[0]

    with warming_up(model, keep, (4, 3, 8, 8), torch.uint8):
        pass
    assert stepped[0].totals[2] == 4
    assert stepped[0].model is not model
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_fails_is_left_to_the_real_step(caplog: pytest.LogCaptureFixture) -> None:
    model = arrn.create_model("arrn", **TINY)
    with caplog.at_level(logging.DEBUG), warming_up(model, make_step, (4, 5, 8, 8), torch.uint8):
        pass
    assert "the warm-up failed" in caplog.text

import copy

import pytest
import torch
from torch import nn

from dscca.deep.optimizers import FusedRMSprop, make_optimizer


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_fused_rmsprop_takes_torchs_steps(weight_decay):
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    theirs = copy.deepcopy(ours)
    options = {"lr": 1e-2, "weight_decay": weight_decay}
    optimizers = [
        FusedRMSprop(ours.parameters(), **options),
        torch.optim.RMSprop(theirs.parameters(), **options),
    ]
    for _ in range(30):
        x = torch.randn(16, 7, dtype=torch.float64)
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            (model(x) - x[:, :3]).square().sum().backward()
            optimizer.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["rmsprop", "adam", "adamw"])
def test_parameters_without_gradient_stay(name):
    used, idle = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    optimizer = make_optimizer(name, [used, idle], 0.1, weight_decay=0.5)
    used.square().sum().backward()
    optimizer.step()
    assert (used != 1).all()
    assert (idle == 1).all()

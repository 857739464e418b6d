"""A small federation that whatever comes through a door has to survive: several workers, kills and resumes."""

import torch
from torch import nn

import fedlama
from fedlama.base import annotated_fields
from fedlama.data import arrays
from fedlama.run.execute import execute
from fedlama.run.planning import plan
from fedlama.training.checkpointing import Checkpointing, Control
from fedlama.training.options import RunOptions, participation_of

CLIENTS = 6


def samples():
    generator = torch.Generator().manual_seed(1)
    owners = torch.arange(CLIENTS).repeat_interleave(12)
    x = torch.randn(len(owners), 6, generator=generator) + owners[:, None] * 0.3
    y = torch.randint(0, 3, (len(owners),), generator=generator)
    return arrays(x, y, x, y, clients=owners)


def network():
    return nn.Sequential(
        nn.Linear(6, 12),
        nn.BatchNorm1d(12),
        nn.Tanh(),
        nn.Linear(12, 8),
        nn.Tanh(),
        nn.Linear(8, 3),
    )


def wide_network():
    """With two kernels of 1,280 numbers: below 1,024, tensors go into one small group, whatever the codec."""
    return nn.Sequential(
        nn.Linear(6, 40),
        nn.BatchNorm1d(40),
        nn.Tanh(),
        nn.Linear(40, 32),
        nn.Tanh(),
        nn.Linear(32, 40),
        nn.Tanh(),
        nn.Linear(40, 3),
    )


def arguments(**options):
    """Windows of two cycles of three rounds, three of six clients at a time."""
    return {
        "policy": fedlama.FedLAMA(2, 3),
        "local": fedlama.SGD(0.05, 4),
        "participation": 3,
        "iterations": 48,
        "window": 12,
        "seed": 5,
        "execution": "one-by-one",
    } | options


def run(model=network, **options):
    """The small federation, in memory."""
    return fedlama.simulate(model, samples(), **arguments(**options))


def run_in_folder(folder, observers=(), *, resume=False, **options):
    """The same in a run directory, with a checkpoint at every cycle's end."""
    parts = arguments(**options)
    who = participation_of(parts.pop("participation"), parts.pop("window"))
    names = [name for name in annotated_fields(RunOptions) if name in parts]
    run_options = RunOptions(
        checkpoint_minutes=0.0, **{name: parts.pop(name) for name in names}
    )
    planned = plan(network, samples(), run_options, participation=who, **parts)
    return execute(planned, folder, observers, workers=1, resume=resume)


class StopOften(Control):
    """Asks at every cycle's end to save and stop."""

    def wishes(self):
        return True, True


def run_in_pieces(**options):
    """The same run, stopped at every cycle's end and resumed from what was saved; also how often."""
    saved = [b""]
    records = []
    stops = 0
    while True:
        keeping = Checkpointing(
            StopOften(),
            lambda content, state: saved.__setitem__(0, content),
            saved[0],
            records,
        )
        records = list(records)
        try:
            return run(
                checkpointing=keeping, on_record=records.append, **options
            ), stops
        except fedlama.RunError:
            stops += 1


def weights(result):
    return torch.cat(
        [tensor.reshape(-1).double() for tensor in result.model.state_dict().values()]
    )


def same_bits(one, other):
    return one.records == other.records and torch.equal(weights(one), weights(other))


def check_door(**options):
    """Three workers and a run in pieces give the bits of one uninterrupted process; the run itself is returned."""
    whole = run(**options)
    assert same_bits(whole, run(workers=3, **options))
    pieces, stops = run_in_pieces(**options)
    assert stops == 7
    assert same_bits(whole, pieces)
    return whole

"""What a rule is handed to look at: values before a round, to which policies and codes refer as well."""

import pytest
import torch

import fedlama
from doors.harness import run, same_bits
from fedlama.base import InputError
from fedlama.core import RoundPlan, Traffic
from fedlama.rows import describe
from fedlama.server import ListReduce, Mean, Momentum, Server


class WritesToTheAnchor(Mean):
    """The average, written over what the layer was before."""

    def apply(self, anchor, mean, own, *, count, periods):
        """The average by another way."""
        anchor.copy_(mean)
        return anchor


class MergesIntoTheAnchor(fedlama.SGD):
    """A local rule whose server part does so."""

    def merge(self, anchor, mean, own, *, steps, taken, share):
        """The average by another way."""
        return anchor.copy_(mean)


class StepsOnTheAnchor(fedlama.SGD):
    """A local rule that pulls the server's model along with the client's."""

    def step(self, row, gradient, own, server, *, rate, kernels):
        """One step of both."""
        server["model"].sub_(gradient.mean(), alpha=rate)
        super().step(row, gradient, own, server, rate=rate, kernels=kernels)


class SyncsIntoTheAnchor(fedlama.SGD):
    """A local rule that writes there before the upload."""

    def sync(self, row, own, server, *, steps, taken):
        """Nothing for the client."""
        server["model"].zero_()


class CountsInPlace(fedlama.SGD):
    """A local rule that works with the counts of steps, which other layers share."""

    def sync(self, row, own, server, *, steps, taken):
        """Nothing for the client."""
        taken.clamp_(min=1)


class StepsOnTheControl(fedlama.Scaffold):
    """A local rule that changes what the server sent for it."""

    def correct(self, gradient, row, own, server):
        """As SCAFFOLD, but in the wrong place."""
        server["scaffold server control"].add_(1.0)


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ({"server": WritesToTheAnchor()}, "WritesToTheAnchor"),
        ({"local": MergesIntoTheAnchor(0.1, 4)}, "MergesIntoTheAnchor"),
        ({"local": StepsOnTheAnchor(0.1, 4)}, "StepsOnTheAnchor"),
        ({"local": SyncsIntoTheAnchor(0.1, 4)}, "SyncsIntoTheAnchor"),
        ({"local": CountsInPlace(0.1, 4)}, "CountsInPlace"),
        ({"local": StepsOnTheControl(fedlama.SGD(0.1, 4))}, "StepsOnTheControl"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_rule_that_writes_to_what_it_may_only_read_is_named(rules, name, workers):
    with pytest.raises(InputError, match=f"^{name} writes to .* read-only"):
        run(**rules, workers=workers)


def test_a_rule_may_write_to_the_average_and_give_it_back():
    class HalvesInPlace(Mean):
        def apply(self, anchor, mean, own, *, count, periods):
            return mean.mul_(0.5)

    class Halves(Mean):
        def apply(self, anchor, mean, own, *, count, periods):
            return mean * 0.5

    assert same_bits(run(server=HalvesInPlace()), run(server=Halves()))


def test_a_server_whose_row_was_made_in_inference_mode_closes_rounds():
    # Torch counts nobody's writes to such a tensor, and does not let itself be asked
    layout = describe(torch.nn.Linear(1, 1, bias=False))
    (part,) = layout.slices_of([0])
    plan = RoundPlan(steps=2, due=(0,), cycle=range(2), ends_cycle=True)
    with torch.inference_mode():
        server = Server(layout, fedlama.FedAvg(2), rule=Momentum(0.9))
        before = server.start(torch.zeros(layout.width))
        client = torch.ones(layout.width)
        reduce = ListReduce(layout, [client], [1.0])
        after = server.close(before, plan, reduce, Traffic())
    # Δ = 1, m = 1, x = 0 + 1
    assert after.row[part].tolist() == [1.0]

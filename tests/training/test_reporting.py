"""The table that tells every process of every client, and who was averaged as rules are told."""

import torch

from fedlama.server import Participant, Participants
from fedlama.training.reporting import ReportColumns


def test_what_was_packed_is_unpacked_from_the_table_of_all():
    here = ReportColumns(
        losses=torch.tensor([1.0]),
        largest=torch.tensor([[2.0, 3.0]]),
        figures=torch.tensor([[4.0, 5.0, 6.0]]),
        norms=torch.tensor([[7.0]]),
    )
    table = here.pack()
    assert table.tolist() == [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]]
    of_all = here.unpack(torch.cat([table, table + 10]))
    assert of_all.losses.tolist() == [1.0, 11.0]
    assert of_all.largest.tolist() == [[2.0, 3.0], [12.0, 13.0]]
    assert of_all.figures.tolist() == [[4.0, 5.0, 6.0], [14.0, 15.0, 16.0]]
    assert of_all.norms.tolist() == [[7.0], [17.0]]


def test_a_process_without_clients_knows_the_columns():
    # Without a code and without a limit: the loss and two slices
    here = ReportColumns(
        losses=torch.zeros(0),
        largest=torch.zeros(0, 2),
        figures=torch.zeros(0, 0),
        norms=torch.zeros(0, 0),
    )
    assert here.pack().shape == (0, 3)
    of_all = here.unpack(torch.tensor([[1.0, 2.0, 3.0]]))
    assert of_all.largest.tolist() == [[2.0, 3.0]]
    assert of_all.norms.flatten().tolist() == []


def test_rules_are_told_each_weight_with_the_steps_of_its_client():
    # Of eight steps at τ' = 4, one client takes all and one takes 3 per interval: local steps 0 … 5
    clients = (Participant(0.25), Participant(0.75, pace=3))
    assert Participants(clients).taken(range(8), 4) == [(0.25, 8), (0.75, 6)]
    assert Participants().taken(range(8), 4) == [(1.0, 8)]

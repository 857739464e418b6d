"""One round between ranks: what each hands over, and what every rank's server makes of it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedlama.averager.messages import Messages
from fedlama.averager.ranks import Ranks
from fedlama.averager.reduce import AllReduce, GatheredReduce
from fedlama.compress import MessagePlace
from fedlama.core import Message, PolicyState, RoundPlan, Traffic
from fedlama.server import LAST_CHANGE, Participants, Reduce, Server, ServerState


@dataclass(frozen=True)
class Closed:
    """A round that was closed.

    Arguments:
        state: Where the server stands after it.
        overhead_bytes: What this rank handed over beside the layers.
    """

    state: ServerState
    overhead_bytes: int


def plan_of_the_rest(state: PolicyState, step: int) -> RoundPlan:
    """A round that ends a cycle early, with all layers that are behind; nothing is due in it where none is.

    Arguments:
        state: Where the policy stands.
        step: How many steps were trained.
    """
    behind: list[int] = []
    for layer, synchronised_at in enumerate(state.synchronised_at):
        if synchronised_at < step:
            behind.append(layer)
    return RoundPlan(
        steps=step - state.step,
        due=tuple(behind),
        cycle=range(state.cycle_start, step),
        ends_cycle=True,
    )


def close_round(
    server: Server,
    state: ServerState,
    plan: RoundPlan,
    row: Tensor,
    *,
    ranks: Ranks,
    messages: Messages | None,
    step: int,
) -> Closed:
    """Average the due layers of all ranks' rows, and let this rank's server close the round.

    Arguments:
        server: What every rank does with an average.
        state: Where it stands.
        plan: The round.
        row: This rank's.
        ranks: The processes that average with each other.
        messages: Codes and decodes what they send; None where numbers are added up as they are.
        step: How many steps were taken, for the sentence where the training diverged.
    """
    if messages is None:
        return _close_plain(server=server, state=state, plan=plan, row=row, ranks=ranks)
    return _close_coded(
        server=server,
        state=state,
        plan=plan,
        row=row,
        messages=messages,
        step=step,
    )


def _close_plain(
    server: Server, state: ServerState, plan: RoundPlan, row: Tensor, ranks: Ranks
) -> Closed:
    """Numbers as wide as the row's, added up by all-reduce."""
    reduce = AllReduce(server.layout, row, ranks)
    upload = reduce.upload(plan.due)
    of_all_ranks = upload.times(ranks.count)
    after = _close(
        server,
        state,
        plan,
        reduce,
        upload=upload,
        of_all_ranks=of_all_ranks,
    )
    return Closed(after, reduce.discrepancy_bytes)


def _close_coded(
    server: Server,
    state: ServerState,
    plan: RoundPlan,
    row: Tensor,
    messages: Messages,
    step: int,
) -> Closed:
    """Messages that every rank decodes, all of them and in the same order, so that all get the same bits."""
    anchor = state.row
    warm = state.slots.get(LAST_CHANGE)
    round_ = state.policy_state.round + 1
    own = messages.ranks.own
    own_place = MessagePlace(round_, client=own)

    content = messages.code(row, anchor, plan, own_place, warm)
    before = messages.handed_bytes
    contents = messages.exchange(content, plan.due, step)
    handed = messages.handed_bytes - before
    padding = handed - len(contents[own])

    decoded = messages.decode(contents, anchor, plan, round_)
    of_all_ranks = Message()
    for message in decoded:
        of_all_ranks = of_all_ranks.plus(message.charged)

    # What is not of one rank must be drawn alike by all of them.
    place = MessagePlace(round_, client=0)
    reduce = GatheredReduce(messages.channel, anchor, decoded, place)
    after = _close(
        server,
        state,
        plan,
        reduce,
        upload=decoded[own].charged,
        of_all_ranks=of_all_ranks,
    )
    return Closed(after, padding)


def _close(
    server: Server,
    state: ServerState,
    plan: RoundPlan,
    reduce: Reduce,
    upload: Message,
    of_all_ranks: Message,
) -> ServerState:
    """The account is of this rank's upload; the policy gets that of all ranks, so that all decide alike."""
    return server.close(
        state,
        plan,
        reduce,
        Traffic(up=upload),
        participants=Participants(sent=of_all_ranks.layers),
    )

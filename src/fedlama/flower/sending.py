"""What clients are sent: the whole model to those who enter, to the others the layers that were averaged last."""

from __future__ import annotations

from typing import Any

from flwr.app import RecordDict

from fedlama.compress import Channel, Codec, CodedMessage, MessagePlace
from fedlama.core import Layout, RoundPlan
from fedlama.core import Message as Bytes
from fedlama.flower.codes import codec_to_plain, place_to_plain
from fedlama.flower.cohorts import FlowerCohorts
from fedlama.flower.packing import CODED, Packed, pack_plain, pack_rule_rows
from fedlama.flower.shipments import Identity, Shipment
from fedlama.flower.tasks import Keep, Task, task_record
from fedlama.server import Server, ServerState
from fedlama.training.coding import place_in_window
from fedlama.training.position import Position


class SendingChannel(Channel):
    """A channel that remembers the last message, whose bytes are to be sent."""

    last: CodedMessage | None = None

    def simulate(self, *args: Any, **options: Any) -> CodedMessage:
        """As a channel does."""
        self.last = super().simulate(*args, **options)
        return self.last


class Sender:
    """Makes the messages to clients.

    Arguments:
        identity: What every task says alike.
        server: Plans and closes rounds, and knows what a download weighs.
        cohorts: Knows the windows.
        downlink: The server's code, with the message that it made last; None where it has none.
    """

    def __init__(
        self,
        identity: Identity,
        server: Server,
        cohorts: FlowerCohorts,
        downlink: SendingChannel | None,
    ) -> None:
        self.identity = identity
        self.server = server
        self.layout: Layout = server.layout
        self.cohorts = cohorts
        self.downlink = downlink
        # None where all clients of the next round are new
        self._staying: Shipment | None = None
        self._uplink = _plain(identity.uplink)
        self._downlink = _plain(identity.downlink)

    def keep_for_those_who_stay(
        self, after: ServerState, plan: RoundPlan, place: MessagePlace
    ) -> None:
        """Remember what a round averaged: clients that stay are sent it before the next one.

        Arguments:
            after: The server after the round.
            plan: The round.
            place: Where its message belongs.
        """
        if self.cohorts.ends_window(after.step):
            self._staying = None
            return

        layers = list(plan.renewed)
        if self.downlink is None:
            slices = self.layout.slices_with_statistics(layers)
            numbers = pack_plain(after.row, slices)
            self._staying = self._shipment(after, layers, numbers)
            return

        # Coded once, when the round was closed: coding again would change what error feedback keeps.
        message = self.downlink.last
        assert message is not None, "closing a round coded its message"
        content = message.to_bytes()
        self._staying = self._shipment(
            after,
            layers,
            Packed(CODED, content),
            place=place_to_plain(place),
        )

    def round(self, position: Position, plan: RoundPlan, tag: str) -> RoundSender:
        """The messages of one round.

        Arguments:
            position: Where the run stands before it.
            plan: The round.
            tag: Marks the states that clients have after it.
        """
        count = len(self.layout.layers)
        everything = list(range(count))
        slices = self.layout.slices_with_statistics(everything)
        numbers = pack_plain(position.row, slices)
        whole = self._shipment(position.server_state, everything, numbers)
        return RoundSender(
            self,
            position,
            plan,
            tag,
            whole=whole,
            staying=self._staying,
        )

    def task(
        self,
        position: Position,
        plan: RoundPlan,
        client: int,
        tag: str,
        expects: str,
        sent: Shipment,
    ) -> Task:
        """What a client is to do.

        Arguments:
            position: Where the run stands.
            plan: The round.
            client: The client's number.
            tag: Marks the state that it then has.
            expects: The tag of the state that it must have; empty for one that enters.
            sent: The layers that go with the task.
        """
        identity = self.identity
        trained: list[int] | None = None
        if plan.trained is not None:
            trained = list(plan.trained)
        place = self.place(position, plan, client)
        return Task(
            run=identity.run,
            tag=tag,
            expects=expects,
            keep=self._keep(position.step + plan.steps),
            layout=identity.layout,
            grouping=identity.grouping,
            rule=identity.rule,
            seed=identity.seed,
            client=client,
            window=self.cohorts.window_of(position.step),
            base_interval=self.server.policy.base_interval,
            step=position.step,
            steps=plan.steps,
            sent=sent.layers,
            due=list(plan.due),
            trained=trained,
            since=list(position.policy_state.synchronised_at),
            counters=position.counters.tolist(),
            place=place_to_plain(place),
            sent_place=sent.place,
            beside=sent.beside,
            uplink=self._uplink,
            downlink=self._downlink,
        )

    def place(self, position: Position, plan: RoundPlan, client: int) -> MessagePlace:
        """Where a message belongs.

        Arguments:
            position: Where the run stands before the round.
            plan: The round.
            client: Whose message it is; 0 for the server's own.
        """
        return place_in_window(
            position,
            plan,
            client,
            window_steps=self.cohorts.window_steps,
            base_interval=self.server.policy.base_interval,
        )

    def _keep(self, after: int) -> Keep:
        """What a client should keep when so many steps are taken."""
        if after >= self.identity.iterations:
            return "nothing"
        if self.cohorts.ends_window(after):
            return "run"
        return "everything"

    def _shipment(
        self,
        state: ServerState,
        layers: list[int],
        numbers: Packed,
        place: dict[str, Any] | None = None,
    ) -> Shipment:
        """These numbers of layers, and behind them what the local rule sends, such as Scaffold's control."""
        beside = b""
        local = self.server.local
        if local is not None and local.sends:
            rows = [state.slots[name] for name in local.sends]
            slices = self.layout.slices_of(layers)
            beside = pack_rule_rows(rows, slices)

        packed = Packed(numbers.kind, numbers.content + beside)
        return Shipment(
            layers=layers,
            packed=packed,
            beside=len(beside),
            place=place,
        )


class RoundSender:
    """Makes the messages of one round, and counts their bytes.

    Arguments:
        sender: Makes tasks.
        position: Where the run stands.
        plan: The round.
        tag: Marks the states that clients have after it.
        whole: The whole model.
        staying: What clients with an up-to-date state are sent; None where there are none.
    """

    def __init__(
        self,
        sender: Sender,
        position: Position,
        plan: RoundPlan,
        tag: str,
        *,
        whole: Shipment,
        staying: Shipment | None,
    ) -> None:
        self.sender = sender
        self.position = position
        self.plan = plan
        self.tag = tag
        self.whole = whole
        self.staying = staying
        self.sent: list[Bytes] = []

    def content(self, client: int, expects: str) -> RecordDict:
        """The message to a client.

        Arguments:
            client: Its number.
            expects: The tag of the state that it has; empty where it has none, so that it gets the whole model.
        """
        shipment = self.staying
        enters = not expects or shipment is None
        if shipment is None or enters:
            shipment = self.whole
            expects = ""

        server = self.sender.server
        weight = server.download(self.position.server_state, entering=enters)
        self.sent.append(weight)

        task = self.sender.task(
            position=self.position,
            plan=self.plan,
            client=client,
            tag=self.tag,
            expects=expects,
            sent=shipment,
        )
        return task_record(task, shipment.packed)


def _plain(codec: Codec | None) -> dict[str, Any] | None:
    if codec is None:
        return None
    return codec_to_plain(codec)

"""Who is there: Flower's nodes by the number of the client that each is."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from logging import WARNING

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.common import log
from flwr.serverapp import Grid

from fedlama.base import InputError, RunError
from fedlama.flower.exchange import FollowUp, NodeExchange, pauses_after
from fedlama.flower.pulling import Request
from fedlama.flower.queries import RECORD, EndedRun, Member, forget_record, read_member
from fedlama.flower.questions import Questions
from fedlama.flower.samples import SamplesLimit
from fedlama.flower.votes import Votes
from fedlama.server.exclusions import REFUSED

# After an answer that could not be used: the node may just have started
ASK_AGAIN_SECONDS = 5.0
REFRESH_SECONDS = 1.0
# To say who one is takes no training: one silent node must not hold up all others for a round's deadline
ASK_SECONDS = 60.0
# However little time is left: a process has to start before a node can answer
MIN_ASK_SECONDS = 30.0
# A live node fetches a message within three seconds, and then acts on it, whether somebody waits for that or not
FORGET_SECONDS = 10.0
# By then a process has started on any node that fetched it
FORGET_TTL = 120.0
SILENT = "it did not say in time who it is"


class Nodes:
    """The nodes of a run.

    Arguments:
        grid: Flower's.
        seed: The run's; clients are asked for the size of a shard that may be drawn from it.
        deadline: Seconds after which a reply is late.
        rule: The local rule that the server expects of all clients; empty for any.
        weights: What the server weighs clients by, which they must be able to say.
        limit: How many samples they may say they have.
    """

    def __init__(
        self,
        grid: Grid,
        *,
        seed: int,
        deadline: float,
        rule: str,
        weights: str,
        limit: SamplesLimit,
    ) -> None:
        self.grid = grid
        self.exchange = NodeExchange(grid, deadline=deadline)
        self.deadline = deadline
        self.members: dict[int, Member] = {}  # by client
        self.samples: dict[int, int] = {}  # by client, also of those that left
        self.population = 0
        self.limit = limit
        # Why clients that said who they are take no part, by client
        self.refusals: dict[int, str] = {}
        self.last_refusal = ""
        self._waited = 0.0
        question = ConfigRecord({"seed": str(seed), "rule": rule, "weights": weights})
        content = RecordDict({RECORD: question})
        self.questions = Questions(grid, content)
        # How often in a row nodes did not say in the run who they are
        self._silent: Counter[int] = Counter()
        # How many clients each node says there are; of use until the run begins
        self._votes = Votes()
        self._is_settled = False

    def refresh(self) -> None:
        """Ask nodes that came who they are, and forget those that left."""
        there = self._note_who_is_there()
        newcomers: list[int] = []
        for node in self._unknown(there):
            if not self.questions.is_open(node):
                newcomers.append(node)
        patience = self._patience
        for node in newcomers:
            self.questions.ask(node, seconds=patience)
        self._take_answers(there, newcomers, patience)
        for node in self.questions.close_late():
            self._silent[node] += 1
            # To stay silent costs all others the time that they wait for an answer.
            pauses = max(1, pauses_after(self._silent[node]))
            self._refuse(node, SILENT, pause=pauses * self.deadline)

    def wait_for(self, minimum: int, seconds: float) -> None:
        """Wait until so many clients are there.

        Arguments:
            minimum: How many; 0 for all that there are.
            seconds: For how long at most.
        """
        self._waited = seconds
        end = time.monotonic() + seconds
        while True:
            there = self._note_who_is_there()
            left = end - time.monotonic()
            if left > 0:
                # A node that is held up is waited for anyway, so its answer counts for as long as that.
                self._ask_while_waiting(there, left)
            self._take_answers(there, there, REFRESH_SECONDS)
            for node in self.questions.close_late():
                self._refuse(node, SILENT, pause=ASK_AGAIN_SECONDS)

            wanted = minimum or self.population
            is_enough = wanted and len(self.members) >= wanted
            if is_enough and not self.questions.asked_within(self._patience):
                return
            if not self.questions.are_open:
                if left <= 0:
                    return
                time.sleep(REFRESH_SECONDS)

    def present(self, clients: Iterable[int]) -> list[int]:
        """Those of these clients that can be sent a message.

        Arguments:
            clients: Their numbers.
        """
        found: list[int] = []
        for client in clients:
            member = self.members.get(client)
            if member is None:
                continue
            # It still sends a reply that is late, and would be late with the next one, too.
            if self.exchange.is_busy(member.node):
                continue
            found.append(client)
        return found

    def train(
        self, contents: Mapping[int, RecordDict], follow_up: FollowUp
    ) -> dict[int, Message]:
        """Send each client its content; the replies that came before the deadline.

        Arguments:
            contents: What to send, by client.
            follow_up: Asked about each reply: what to send to this client at once in answer, or None.
        """
        requests: dict[int, Request] = {}
        for client, content in contents.items():
            member = self.members[client]
            requests[client] = Request(member.node, content)
        return self.exchange.ask(
            requests,
            MessageType.TRAIN,
            follow_up,
        )

    def forget(self, clients: Iterable[int], run: EndedRun) -> None:
        """Ask clients to free what they keep of a run that has ended; those that cannot be reached keep it.

        Arguments:
            clients: Their numbers.
            run: The run.
        """
        content = forget_record(run)
        requests: list[Request] = []
        for client in clients:
            member = self.members.get(client)
            if member is not None:
                requests.append(Request(member.node, content))
        self.exchange.tell(
            requests,
            MessageType.QUERY,
            seconds=FORGET_SECONDS,
            ttl=FORGET_TTL,
        )

    def check_population(self) -> int:
        """How many clients there are, from now on unchanged, or an error that says what is missing."""
        self._is_settled = True
        if not self.members:
            why = self.last_refusal or "no node is connected"
            raise RunError(
                f"no node could say within {self._waited:g} seconds which client it is ({why}): start SuperNodes with "
                f"--node-config 'partition-id=0 num-partitions=4' and the client app of fedlama.flower"
            )
        if not self.population:
            raise InputError(
                "the nodes have no num-partitions in their configuration: start them with --node-config"
            )
        self._limit_samples()
        return self.population

    def _limit_samples(self) -> None:
        """Let no client that answered before the run say more than is believed."""
        self.limit.settle(self.samples[client] for client in self.members)
        for client, member in list(self.members.items()):
            try:
                self._check_samples(member)
            except InputError as error:
                del self.members[client]
                self._refuse(member.node, str(error), pause=ASK_AGAIN_SECONDS)

    def _check_samples(self, member: Member) -> None:
        client = member.client
        try:
            self.limit.check(member.samples)
        except InputError as error:
            self.refusals[client] = f"{REFUSED}: {error}"
            raise
        self.refusals.pop(client, None)

    @property
    def _patience(self) -> float:
        """For how many seconds others wait for one node's answer."""
        return min(ASK_SECONDS, self.deadline)

    def _note_who_is_there(self) -> set[int]:
        """The nodes that are connected; what is known of others is forgotten."""
        there = set(self.grid.get_node_ids())
        self.exchange.note_who_is_there(there)
        self.questions.forget_all_but(there)
        for client, member in list(self.members.items()):
            if member.node not in there:
                del self.members[client]
        for node in set(self._silent) - there:
            del self._silent[node]
        return there

    def _unknown(self, there: set[int]) -> list[int]:
        """The nodes that may be asked now who they are."""
        known = {member.node for member in self.members.values()}
        unknown = sorted(there - known)
        return [node for node in unknown if self.questions.may_be_asked(node)]

    def _ask_while_waiting(self, there: set[int], seconds: float) -> None:
        """Ask who is not known; whoever stays silent now and then again, for it may have been started anew."""
        patience = self._patience
        least = min(MIN_ASK_SECONDS, self.deadline)
        time_to_answer = max(seconds, least)
        for node in self._unknown(there):
            if self.questions.was_asked_within(patience, node):
                continue
            self.questions.ask(node, seconds=time_to_answer)

    def _take_answers(
        self, there: set[int], nodes: Collection[int], seconds: float
    ) -> None:
        """Add those who have said who they are, when these nodes have, or so many seconds later."""
        replies = self.questions.answers(nodes, seconds)
        answers: list[Member] = []
        for node in sorted(replies):
            self._silent.pop(node, None)
            try:
                member = read_member(node, replies[node])
            except InputError as error:
                self._refuse(node, str(error), pause=ASK_AGAIN_SECONDS)
                continue
            answers.append(member)
            self._votes.note(node, member.clients)

        # Before anyone is added: all answers count alike, whatever the order of node ids.
        self._count_votes(there)
        for member in answers:
            try:
                self._add(member)
            except InputError as error:
                self._refuse(member.node, str(error), pause=ASK_AGAIN_SECONDS)

    def _add(self, member: Member) -> None:
        client = member.client
        known = self.members.get(client)
        if known is not None and known.node != member.node:
            raise InputError(f"another node is client {client} already")

        self._check_agrees(member)
        self._check_samples(member)
        self.members[client] = member
        self.samples[client] = member.samples

    def _count_votes(self, there: set[int]) -> None:
        """Until the run begins, how many clients there are is what most nodes say."""
        if self._is_settled:
            return
        winner = self._votes.winner(there)
        if winner is None:
            return

        before = self.population
        self.population = winner
        if winner == before:
            return
        for client, member in list(self.members.items()):
            try:
                self._check_agrees(member)
            except InputError as error:
                del self.members[client]
                self._refuse(member.node, str(error), pause=ASK_AGAIN_SECONDS)
        # Nodes that were refused while others were the majority need not wait.
        for node in self._votes.voters(winner):
            self.questions.allow(node)

    def _check_agrees(self, member: Member) -> None:
        if member.clients != self.population:
            raise InputError(
                f"it says that there are {member.clients} clients, "
                f"the others say {self.population}"
            )

    def _refuse(self, node: int, why: str, *, pause: float) -> None:
        log(WARNING, "node %s takes no part: %s", node, why)
        self.last_refusal = why
        self.questions.leave_alone(node, seconds=pause)

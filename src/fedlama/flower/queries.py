"""What a node is asked beside training: who it is, and to forget a run that has ended."""

from __future__ import annotations

from dataclasses import dataclass

from flwr.app import ConfigRecord, Message, RecordDict

from fedlama.base import InputError, printable
from fedlama.flower.tasks import Keep

RECORD = "fedlama"  # the name of the ConfigRecord of a question, and of its answer
FORGET = "forget"  # in that record, where a run has ended: its name
KEEP = "keep"  # beside it: what a client should keep all the same
KEEPS = "keeps"  # in an answer: whether the way to train keeps something from round to round
MAX_REASON = 400  # characters of a node's error
MAX_RULE = 200  # characters of what a client says of its local rule
MAX_OPTIONS = 2000
MAX_CLIENTS = 1 << 20  # cohorts are drawn from a list of all of them


@dataclass(frozen=True, kw_only=True)
class EndedRun:
    """A run that has ended: its name, and what clients should keep of it, "run" where it may be resumed."""

    name: str
    keep: Keep


def forget_record(run: EndedRun) -> RecordDict:
    """The content of a query by which a client frees what it has of a run.

    Arguments:
        run: The run.
    """
    request = ConfigRecord({FORGET: run.name, KEEP: run.keep})
    return RecordDict({RECORD: request})


def read_forget(question: ConfigRecord) -> EndedRun | None:
    """The run that a client should forget; None where it is asked something else.

    Arguments:
        question: What came with a query.
    """
    name = question.get(FORGET)
    if name is None:
        return None
    keep: Keep = "nothing"
    if question.get(KEEP) == "run":
        keep = "run"
    return EndedRun(name=str(name), keep=keep)


@dataclass(frozen=True, kw_only=True)
class Member:
    """A node that said who it is: its partition id, of how many, its samples, and how it trains.

    `keeps` says whether its way to train keeps something from round to round.
    """

    node: int
    client: int
    clients: int
    samples: int
    local: str  # in words
    options: str  # as JSON
    keeps: bool = True


def read_member(node: int, reply: Message) -> Member:
    """Who a node says it is, or InputError: it may say anything.

    Arguments:
        node: Flower's id of it.
        reply: What it replied to the question.
    """
    if reply.has_error():
        why = printable(reply.error.reason or "", MAX_REASON)
        raise InputError(f"it failed to say who it is: {why}")
    answer = reply.content.config_records.get(RECORD)
    if answer is None:
        raise InputError("its client app is not one of fedlama.flower")

    client = _count(answer, "client")
    clients = _count(answer, "clients")
    samples = _count(answer, "samples")
    if clients > MAX_CLIENTS:
        raise InputError(
            f"it says that there are {clients} clients; at most {MAX_CLIENTS} can be"
        )
    if samples < 1:
        raise InputError(f"client {client} has no samples")
    if clients and client >= clients:
        raise InputError(
            f"it says that it is client {client} of {clients}, which are counted from 0"
        )

    local = str(answer.get("local", ""))
    options = str(answer.get("options", ""))
    return Member(
        node=node,
        client=client,
        clients=clients,
        samples=samples,
        local=printable(local, MAX_RULE),
        options=options[:MAX_OPTIONS],
        keeps=answer.get(KEEPS) is not False,
    )


def _count(answer: ConfigRecord, name: str) -> int:
    value = answer.get(name)
    # Not isinstance, for which True is a number
    if type(value) is not int or value < 0:
        raise InputError(f"its answer has no number of {name}")
    return value

"""What the server does with an average, the same in every runtime."""

from fedlama.server.adam import Adam
from fedlama.server.mean import Mean
from fedlama.server.momentum import Momentum
from fedlama.server.participants import Participant, Participants
from fedlama.server.reduce import ListReduce, Reduce
from fedlama.server.rule import ServerRule
from fedlama.server.server import Server
from fedlama.server.state import LAST_CHANGE, ServerState
from fedlama.server.yogi import Yogi

__all__ = [
    "LAST_CHANGE",
    "Adam",
    "ListReduce",
    "Mean",
    "Momentum",
    "Participant",
    "Participants",
    "Reduce",
    "Server",
    "ServerRule",
    "ServerState",
    "Yogi",
]

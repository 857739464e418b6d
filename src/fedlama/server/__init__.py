"""What the server does with an average, the same in every runtime."""

from fedlama.server.mean import Mean
from fedlama.server.reduce import ListReduce, Reduce
from fedlama.server.rule import ServerRule
from fedlama.server.server import LAST_CHANGE, Server, ServerState

__all__ = ["LAST_CHANGE", "ListReduce", "Mean", "Reduce", "Server", "ServerRule", "ServerState"]

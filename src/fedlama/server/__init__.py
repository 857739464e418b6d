"""What the server does with an average, the same in every runtime."""

from fedlama.server.mean import Mean
from fedlama.server.reduce import ListReduce, Reduce
from fedlama.server.rule import ServerRule
from fedlama.server.server import Server, ServerState

__all__ = ["ListReduce", "Mean", "Reduce", "Server", "ServerRule", "ServerState"]

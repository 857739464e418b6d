"""A grid in memory: nodes are client apps in this process, each with a context of its own, and may misbehave."""

import copy
import threading

from flwr.app import Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity


class MemoryGrid:
    """As much of Flower's Grid as a strategy uses.

    `misbehave(partition, message, reply)` gives another reply, or None for silence.
    """

    def __init__(
        self, app, partitions, population=None, misbehave=None, node_config=None
    ):
        # Flower sets it where it starts a ServerApp; a message takes its sender from here.
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
        self.app = app
        self.misbehave = misbehave
        self.contexts = {}
        self.replies = {}
        # (partition, message type, bytes of arrays down, bytes of arrays up)
        self.sent = []
        self.lock = threading.Lock()
        for partition in partitions:
            self.join(partition, population or len(partitions), node_config)

    def join(self, partition, population, node_config=None):
        node = 1000 - 7 * partition  # the order of node ids is not that of partitions
        config = {
            "partition-id": partition,
            "num-partitions": population,
            **(node_config or {}),
        }
        self.contexts[node] = Context(
            run_id=1,
            node_id=node,
            node_config=config,
            state=RecordDict(),
            run_config={},
        )

    def leave(self, partition):
        del self.contexts[1000 - 7 * partition]

    def context(self, partition):
        return self.contexts[1000 - 7 * partition]

    def get_node_ids(self):
        return list(self.contexts)

    def push_messages(self, messages):
        numbers = []
        for message in messages:
            number = f"message-{len(self.sent)}"
            message.metadata.__dict__["_message_id"] = number
            node = message.metadata.dst_node_id
            context = self.contexts[node]
            try:
                reply = self.app(copy.deepcopy(message), context)
            except Exception as error:
                reply = Message(Error(code=2, reason=str(error)), reply_to=message)
            up = 0 if reply.has_error() else weight(reply.content)
            partition = context.node_config["partition-id"]
            self.sent.append(
                (partition, message.metadata.message_type, weight(message.content), up)
            )
            if self.misbehave is not None:
                reply = self.misbehave(partition, message, reply)
            if reply is not None:
                self.replies[number] = reply
            numbers.append(number)
        return numbers

    def pull_messages(self, numbers):
        with self.lock:
            return [
                self.replies.pop(number)
                for number in list(numbers)
                if number in self.replies
            ]


def weight(content):
    return sum(
        len(array.data)
        for record in content.array_records.values()
        for array in record.values()
    )

"""The ranks of a process group: what they do together, and what must be the same on all of them."""

from __future__ import annotations

import hashlib

import torch
import torch.distributed as dist
from torch import Tensor

from fedlama.base import InputError

HASH_BYTES = 16


class Ranks:
    """The processes that average with each other.

    Arguments:
        group: The process group; None for that of all ranks.
        device: Where tensors must be that this group's backend takes.
    """

    def __init__(self, group: dist.ProcessGroup | None, device: torch.device) -> None:
        self.group = group
        self.device = device

    @property
    def count(self) -> int:
        """How many there are."""
        return dist.get_world_size(self.group)

    @property
    def own(self) -> int:
        """The number of this rank."""
        return dist.get_rank(self.group)

    def sum_(self, tensor: Tensor) -> None:
        """Add a tensor up over all ranks, in place."""
        dist.all_reduce(tensor, group=self.group)

    def gather(self, content: bytes, length: int) -> list[bytes]:
        """Buffers of this length from all ranks, in their order; `content` is what this rank's begins with."""
        # Torch warns of memory that it must not write to, which that of bytes is.
        padded = bytearray(content.ljust(length, b"\x00"))
        numbers = torch.frombuffer(padded, dtype=torch.uint8)
        own = numbers.to(self.device)
        everyone: list[Tensor] = []
        for _ in range(self.count):
            buffer = torch.empty_like(own)
            everyone.append(buffer)
        dist.all_gather(everyone, own, group=self.group)
        contents: list[bytes] = []
        for buffer in everyone:
            received = buffer.cpu().numpy()
            contents.append(received.tobytes())
        return contents

    def check_same_settings(self, facts: str) -> None:
        """Refuse ranks that differ: they would average other layers, or wait for each other for ever.

        Arguments:
            facts: The model's layers, the settings and where the run stands, as text.
        """
        rank = self._first_that_differs(facts.encode())
        if rank is not None:
            raise InputError(
                f"rank {rank} of the group has another module or other settings than this one: build the averager "
                f"alike on all ranks"
            )

    def check_same_model(self, row: Tensor) -> None:
        """Refuse ranks that have other weights than this one."""
        # Numpy does not know every type of number
        content = row.cpu().view(torch.uint8)
        rank = self._first_that_differs(content.numpy().tobytes())
        if rank is not None:
            raise InputError(
                f"rank {rank} of the group began with other weights than this one: broadcast the module first, because "
                f"coded changes, outer optimizers and policies that ask for norms refer to a common model"
            )

    def _first_that_differs(self, facts: bytes) -> int | None:
        """The first rank for which these facts are others; the answer is the same on all ranks."""
        digest = hashlib.sha256(facts).digest()
        everyone = self.gather(digest[:HASH_BYTES], HASH_BYTES)
        first = everyone[0]
        for rank, other in enumerate(everyone):
            # Against the first and not against one's own, so that all ranks name the same one.
            if other != first:
                return rank
        return None

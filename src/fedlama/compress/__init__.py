"""Codecs: what the numbers of a layer become on the wire, and messages made of them.

`Rotate` is the one to begin with. Each codec is one file that opens with its source; docs/compression.md tells when
to use which.
"""

from fedlama.compress.cast import Cast
from fedlama.compress.chain import Chain, Projection
from fedlama.compress.channel import Channel
from fedlama.compress.codec import Codec
from fedlama.compress.coded import Coded
from fedlama.compress.discrepancy import corrected_spread
from fedlama.compress.error_feedback import ErrorFeedback
from fedlama.compress.fit import Fit
from fedlama.compress.framing import Reader
from fedlama.compress.lowrank import LowRank
from fedlama.compress.message import CodedMessage, Decoded
from fedlama.compress.payload import Payload
from fedlama.compress.place import MessagePlace
from fedlama.compress.quantize import Quantize
from fedlama.compress.rotate import Rotate
from fedlama.compress.streams import Run, Table
from fedlama.compress.topk import TopK

__all__ = [
    "Cast",
    "Chain",
    "Channel",
    "Codec",
    "Coded",
    "CodedMessage",
    "Decoded",
    "ErrorFeedback",
    "Fit",
    "LowRank",
    "MessagePlace",
    "Payload",
    "Projection",
    "Quantize",
    "Reader",
    "Rotate",
    "Run",
    "Table",
    "TopK",
    "corrected_spread",
]

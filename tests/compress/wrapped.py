"""A codec of somebody else's that hands every question to another one: it is that codec, but for its class."""

from dataclasses import dataclass

from fedlama.compress import Codec


@dataclass(frozen=True)
class Wrapped(Codec):
    inner: Codec

    def code(self, x, *, key, bits=None, warm=None):
        return self.inner.code(x, key=key, bits=bits, warm=warm)

    def expect(self, side, shape):
        return self.inner.expect(side, shape)

    def rebuild(self, coded, shape, *, key):
        return self.inner.rebuild(coded, shape, key=key)

    @property
    def slots(self):
        return self.inner.slots

    def target(self, x, own):
        return self.inner.target(x, own)

    def remember(self, target, decoded, own):
        self.inner.remember(target, decoded, own)

    @property
    def rate(self):
        return self.inner.rate

    @property
    def sharing(self):
        return self.inner.sharing

    @property
    def wants_warm(self):
        return self.inner.wants_warm

    def kept(self, bits=None):
        return self.inner.kept(bits)

    def kept_of(self, coded):
        return self.inner.kept_of(coded)

    def for_round(self, round_in_window, rounds_per_window):
        return self.inner.for_round(round_in_window, rounds_per_window)

    def gain_where(self, kept, round_in_window, rounds_per_window):
        return self.inner.gain_where(kept, round_in_window, rounds_per_window)

    def check_window(self, rounds_per_window):
        self.inner.check_window(rounds_per_window)

    def fitted(self, layout):
        return Wrapped(self.inner.fitted(layout))

    def under_feedback(self):
        return Wrapped(self.inner.under_feedback())

    def for_small_tensors(self):
        return Wrapped(self.inner.for_small_tensors())

    def for_whole_run(self):
        return Wrapped(self.inner.for_whole_run())

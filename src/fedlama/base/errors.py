"""The ways a run can end early; each error carries a sentence for the person who started it.

Sentences name files, keys and values that others wrote. Whatever those hold, a message has as many lines as the error
was given arguments, and nothing in it steers a terminal.
"""

from __future__ import annotations

from fedlama.base.text import message_of

# What the sentence of every divergence ends with
DIVERGENCE_ADVICE = ": the training diverged, so lower local.learning_rate"


class InputError(ValueError):
    """The input is wrong: the sentence names what was given and what is allowed (exit code 2)."""

    def __init__(self, *lines: object) -> None:
        message = message_of(lines)
        super().__init__(message)


class RunError(RuntimeError):
    """The input was fine and the run failed all the same; what was finished is kept (exit code 1)."""

    def __init__(self, *lines: object) -> None:
        message = message_of(lines)
        super().__init__(message)


class DivergenceError(RunError):
    """The training ran into numbers that are not finite: the same configuration will do so again."""

    @classmethod
    def because(cls, what: str) -> DivergenceError:
        """The error that says what showed it, and what to do.

        Arguments:
            what: What was not finite or too large, and in which round.
        """
        return cls(f"{what}{DIVERGENCE_ADVICE}")

    @staticmethod
    def cause_in(sentence: str) -> str:
        """What showed it, of such an error's sentence that was written down: without what to do.

        Arguments:
            sentence: The whole of it.
        """
        return sentence.removesuffix(DIVERGENCE_ADVICE)

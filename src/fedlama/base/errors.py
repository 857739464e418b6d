"""The ways a run can end early; each error carries a sentence for the person who started it."""

from fedlama.base.text import one_message


class InputError(ValueError):
    """The input is wrong: the sentence names what was given and what is allowed (exit code 2)."""

    def __init__(self, sentence: object) -> None:
        super().__init__(one_message(sentence))


class RunError(RuntimeError):
    """The input was fine and the run failed all the same; what was finished is kept (exit code 1)."""

    def __init__(self, sentence: object) -> None:
        super().__init__(one_message(sentence))


class DivergenceError(RunError):
    """The training ran into numbers that are not finite: the same configuration will do so again."""

"""The two ways a run can end early; both carry one sentence for the person who started it."""


class InputError(ValueError):
    """The input is wrong: the sentence names what was given and what is allowed (exit code 2)."""


class RunError(RuntimeError):
    """The input was fine and the run failed all the same; what was finished is kept (exit code 1)."""


class DivergenceError(RunError):
    """The training ran into numbers that are not finite: the same configuration will do so again."""

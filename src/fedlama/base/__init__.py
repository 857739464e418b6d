"""What every room may use: errors, options and checks, text and files of others, keys for random draws, JSON helpers.

Standard library only.
"""

from fedlama.base.checks import (
    MAX_SEED,
    MAX_SIZE,
    MAX_WHOLE,
    check_choice,
    check_flag,
    check_number,
    check_whole,
)
from fedlama.base.errors import DivergenceError, InputError, RunError
from fedlama.base.files import (
    NO_ROOM,
    expand_home,
    open_regular,
    read_regular,
    reason,
)
from fedlama.base.identity import by_its_fields, identity_of
from fedlama.base.kinds import check_made, missing_members
from fedlama.base.options import (
    Checked,
    Limits,
    Positive,
    Seed,
    annotated_fields,
    check_option,
    check_options,
)
from fedlama.base.plain import with_tuples
from fedlama.base.randomness import random_key
from fedlama.base.text import printable, shown

__all__ = [
    "MAX_SEED",
    "MAX_SIZE",
    "MAX_WHOLE",
    "NO_ROOM",
    "Checked",
    "DivergenceError",
    "InputError",
    "Limits",
    "Positive",
    "RunError",
    "Seed",
    "annotated_fields",
    "by_its_fields",
    "check_choice",
    "check_flag",
    "check_made",
    "check_number",
    "check_option",
    "check_options",
    "check_whole",
    "expand_home",
    "identity_of",
    "missing_members",
    "open_regular",
    "printable",
    "random_key",
    "read_regular",
    "reason",
    "shown",
    "with_tuples",
]

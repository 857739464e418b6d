"""What others wrote goes into a sentence through `base.text`, which escapes and bounds it; `!r` is for the rest."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "fedlama"

# What is quoted with !r, by module: names and values that this package chose, and codecs, which print their options.
QUOTED = {
    "__init__.py": {"name"},  # as Python's own error has it
    "flower/__init__.py": {"name"},
    "compress/chain.py": {"self.first", "_first_of(self.second)"},
    "compress/channel.py": {"codec"},  # no sentence: what coded bytes depend on
    "compress/error_feedback.py": {"self.codec", "RESIDUAL"},
    "compress/payload.py": {"self.codec", "codec"},
    "compress/sender_slots.py": {"name"},
    "flower/codes.py": {"codec"},
    "report/tables/reproduction.py": {"made.scale"},
    "run/codecs.py": {"name"},
    # The nearest of the names that there are
    "run/default_models.py": {"near"},
    "run/importing.py": {"printable(near)", "near"},
    "run/messages.py": {"near"},
    "training/trainers/layers.py": {"dim"},  # a whole number
}


def test_what_is_quoted_unbounded_is_of_this_package():
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_quoted = isinstance(node, ast.FormattedValue)
            if is_quoted and node.conversion == ord("r"):
                found.setdefault(module, set()).add(ast.unparse(node.value))
    assert found == QUOTED

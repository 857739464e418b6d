"""docs/optimizers.md: its Python runs, and its configuration is one."""

import re
import tomllib
from pathlib import Path

import pytest

from fedlama import FedProx
from fedlama.run.choices import LOCAL_RULES, SERVER_RULES
from fedlama.run.config import parse_config
from fedlama.server import Momentum

PAGE = (Path(__file__).parents[2] / "docs" / "optimizers.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(TABLES,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_snippets_run(snippet):
    exec(compile(snippet, "docs/optimizers.md", "exec"), {})


def test_its_configuration_is_one():
    config = parse_config({"data": {"name": "digits"}, **tomllib.loads(TABLES)})
    assert isinstance(config.local.build(), FedProx)
    assert config.server.build() == Momentum(0.5)


@pytest.mark.parametrize("rule", [*LOCAL_RULES.values(), *SERVER_RULES.values()])
def test_every_rule_is_in_a_table(rule):
    assert f"| `{rule.__name__}(" in PAGE

"""What the README shows works: its Python runs, its TOML is a config, its commands exist.

A block after the comment `<!-- not run: reason -->` is left out.
"""

import re
import shlex
import tomllib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from textwrap import dedent

import pytest
import typer

from fedlama.cli import app
from fedlama.run.config import parse_config
from fedlama.run.overrides import apply_overrides

REPOSITORY = Path(__file__).parent.parent
FENCE = re.compile(r"^\s*(`{3,}|~{3,})\s*([\w-]*).*$")
LEFT_OUT = re.compile(r"<!--\s*not run:\s*\S.*-->")
SMALLEST = {"data": {"name": "digits"}, "train": {"iterations": 1}}


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is that of its first line of content, counted from 1."""

    language: str
    text: str
    line: int

    def __str__(self) -> str:
        return f"{self.language}-line-{self.line}"


def blocks(markdown: str) -> list[Block]:
    """The fenced blocks of a page, without those that are not to be run."""
    found: list[Block] = []
    lines = markdown.splitlines()
    latest_text, number = "", 0
    while number < len(lines):
        opening = FENCE.match(lines[number])
        if opening is None:
            latest_text = lines[number] if lines[number].strip() else latest_text
            number += 1
            continue
        fence, language = opening.groups()
        start = number + 1
        end = next(
            (i for i in range(start, len(lines)) if lines[i].strip() == fence), None
        )
        assert end is not None, f"the block that opens in line {start} is not closed"
        if not LEFT_OUT.search(latest_text):
            found.append(
                Block(language, dedent("\n".join(lines[start:end]) + "\n"), start + 1)
            )
        latest_text, number = "", end + 1
    return found


def commands(block: Block) -> list[list[str]]:
    """The command lines of a shell block as words: all of an `sh` block, those after a prompt of a `console` one."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language == "console":
        lines = [line.lstrip()[2:] for line in lines if line.lstrip().startswith("$ ")]
    return [part for line in lines for part in _split(_words(line)) if part]


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return list(lexer)


def _split(words: list[str]) -> list[list[str]]:
    """At pipes and the like; what a redirection writes to is no argument."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word in ("&&", "||", "|", ";", "&", "(", ")"):
            parts.append([])
        else:
            parts[-1].append(word)
    return [
        part[
            : next(
                (i for i, word in enumerate(part) if set(word) <= {">", "<", "&"}), None
            )
        ]
        for part in parts
    ]


def arguments_of(program: str, words: list[str]) -> list[str] | None:
    """What follows `program` (maybe with a path, after variables, or as `-m program`); None if it is another."""
    while words and re.fullmatch(r"\w+=.*", words[0]):
        words = words[1:]
    for index, (word, following) in enumerate(pairwise(words)):
        if word == "-m" and following == program:
            return words[index + 2 :]
    return words[1:] if words and Path(words[0]).name == program else None


def check_fedlama(arguments: list[str]) -> None:
    """Subcommands and options exist, and what --set sets is a key that takes this value."""
    command, rest = typer.main.get_command(app), list(arguments)
    while rest:
        word = rest.pop(0)
        if word.startswith("-") and word != "-":
            name, equals, value = word.partition("=")
            option = next(
                (p for p in command.params if name in (*p.opts, *p.secondary_opts)),
                None,
            )
            assert option is not None or name == "--help", (
                f"`{command.name}` has no option {name}"
            )
            if (
                option is not None
                and not equals
                and not getattr(option, "is_flag", False)
            ):
                assert rest, f"{name} needs a value"
                value = rest.pop(0)
            if name == "--set":
                parse_config(apply_overrides(SMALLEST, [value]))
        elif hasattr(command, "commands"):
            assert word in command.commands, f"`{command.name}` has no command {word}"
            command = command.commands[word]


def make_targets(makefile: str) -> set[str]:
    return set(re.findall(r"^([\w.-]+):(?!=)", makefile, re.MULTILINE))


def check_make(arguments: list[str], targets: set[str]) -> None:
    """Targets exist; `make -C folder` and variables are left alone."""
    for before, word in pairwise(["make", *arguments]):
        if (
            not word.startswith("-")
            and "=" not in word
            and before not in ("-C", "-f", "-j")
        ):
            assert word in targets, f"the Makefile has no target {word}"


def check_shell(block: Block, targets: set[str]) -> int:
    """Check the commands of a block that are ours; how many there were."""
    ours = 0
    for words in commands(block):
        fedlama, make = arguments_of("fedlama", words), arguments_of("make", words)
        if fedlama is not None:
            check_fedlama(fedlama)
        elif make is not None:
            check_make(make, targets)
        ours += fedlama is not None or make is not None
    return ours


def run_python(block: Block) -> dict:
    """Run a block in a namespace of its own; tracebacks show the lines of the page."""
    namespace = {"__name__": "readme"}
    exec(compile("\n" * (block.line - 1) + block.text, "README.md", "exec"), namespace)
    return namespace


README = blocks((REPOSITORY / "README.md").read_text(encoding="utf-8"))
TARGETS = make_targets((REPOSITORY / "Makefile").read_text(encoding="utf-8"))


def of(*languages: str) -> list[Block]:
    return [block for block in README if block.language in languages]


@pytest.mark.parametrize("block", of("python"), ids=str)
def test_python_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_python(block)


@pytest.mark.parametrize("block", of("toml"), ids=str)
def test_toml_is_a_config(block):
    parse_config(tomllib.loads(block.text), f"README.md, line {block.line}")


@pytest.mark.parametrize("block", of("sh", "console", "bash", "shell"), ids=str)
def test_commands_exist(block):
    check_shell(block, TARGETS)


def test_overrides_fit_the_file_above_them():
    """`fedlama run config.toml --set …` with the README's own file: all of a command's keys together."""
    (file,) = (tomllib.loads(block.text) for block in of("toml"))
    checked = 0
    for block in of("sh"):
        for words in commands(block):
            if words[:3] == ["fedlama", "run", "config.toml"]:
                given = [key for flag, key in pairwise(words) if flag == "--set"]
                parse_config(apply_overrides(file, given))
                checked += len(given)
    assert checked


# The checks themselves, on a page of our own.

SAMPLE = """
# Title

```python
import fedlama
answer = fedlama.adjust_intervals([4.0, 1.0, 2.0], [10, 80, 10], base_interval=6, increase_factor=4)
```

<!-- not run: needs two machines -->

```python
raise SystemExit
```

Some text, which ends what the comment said.

```toml
[data]
name = "digits"
[train]
iterations = 480
```

```sh
make demo                         # a comment
FEDLAMA_DATA=/data .venv/bin/fedlama run my.toml --set policy.kind=fedavg \\
    --out runs/fedavg && fedlama report runs/ > log.txt
python -m fedlama demo --seeds=1
torchrun --nproc-per-node 2 -m fedlama run my.toml
pip install fedlama
```

1. A list:
   ```console
   $ fedlama --version
   fedlama 0.1.0 is no command to be checked
   ```

~~~text
fedlama frobnicate
~~~
"""


def test_blocks_are_found_and_left_out():
    found = blocks(SAMPLE)
    assert [block.language for block in found] == [
        "python",
        "toml",
        "sh",
        "console",
        "text",
    ]
    assert SAMPLE.splitlines()[found[0].line - 1] == "import fedlama"


def test_a_block_that_is_not_closed_is_noticed():
    with pytest.raises(AssertionError, match="line 2 is not closed"):
        blocks("text\n```python\nx = 1\n")


def test_sample_python_runs_and_fails_with_its_own_line():
    assert run_python(blocks(SAMPLE)[0])["answer"] == [6, 24, 6]
    with pytest.raises(ZeroDivisionError) as caught:
        run_python(blocks("one\n\n```python\nx = 1\nx / 0\n```\n")[0])
    assert caught.traceback[-1].lineno == 5 - 1  # pytest counts from 0


def test_sample_toml_is_a_config():
    assert parse_config(tomllib.loads(blocks(SAMPLE)[1].text)).train.iterations == 480


def test_sample_commands_exist():
    _, _, shell, console, _ = blocks(SAMPLE)
    assert check_shell(shell, TARGETS) == 5
    assert commands(shell)[0] == ["make", "demo"]
    assert commands(shell)[2] == ["fedlama", "report", "runs/"]
    assert commands(console) == [["fedlama", "--version"]]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("fedlama frobnicate", "no command frobnicate"),
        ("fedlama run my.toml --sett a=b", "no option --sett"),
        ("fedlama demo --set seed=1", "no option --set"),
        ("python -m fedlama report --out", "--out needs a value"),
        ("make dmeo", "no target dmeo"),
        ("PYTHON=python3.12 make -C .. test typo", "no target typo"),
        ("cd x; make typo | tee log", "no target typo"),
    ],
)
def test_a_command_that_is_not_there_is_noticed(command, said):
    with pytest.raises(AssertionError, match=said):
        check_shell(Block("sh", f"{command}\n", 1), TARGETS)


def test_an_override_of_a_key_that_is_not_there_is_noticed():
    with pytest.raises(ValueError, match=r"policy\.knd"):
        check_shell(
            Block("sh", "fedlama run my.toml --set policy.knd=fedavg\n", 1), TARGETS
        )

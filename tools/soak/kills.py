"""Kill commands and run them again: all files equal those of an unbroken run.

Most kills come just before a file is opened, renamed or removed, each file in turn; the others come
at random times. Run it with ``python -m tools.soak.kills --kills 50``, which kills each command 50
times.
"""

import argparse
import functools
import json
import os
import random
import re
import shutil
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from cli.conftest import without_page
from cli.running import Outcome, hidden_in, read_json, succeed, vepm
from cli.writing import write_nodes
from paper.toys import write_toys
from tools.record import beside, keep
from tools.soak.contents import check_readable, contents, timeless
from vepm.report import page
from vepm.report.page import plan_drawings
from vepm.training import fitting

Words = tuple[str | Path, ...]

CPU = ("--device", "cpu")
SHORT = ("--set", "pretrain_epochs=3", "--set", "epochs=6", *CPU)
CHANGES = {"open": 0, "os.rename": 1, "os.remove": 0, "os.mkdir": 0, "os.rmdir": 0}
"""Events that change files, and which of their arguments is the path."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
PAUSE_SECONDS = 0.01
"""Pause after every save, so that a small run lasts long enough to be killed anywhere."""
AT_RANDOM_TIMES = 5
"""One kill in so many comes at a random time."""
FIGURES = 2
"""Figures of a page; the others are written in the same way."""


@dataclass(frozen=True)
class Scenario:
    """A command that is killed."""

    words: Callable[[Path, Path], Words]
    """The command, given a folder of inputs and one to write to."""
    prepare: Callable[[Path, Path], object] = lambda inputs, output: None
    """Puts into the output what the command expects there."""


def _train(inputs: Path, output: Path) -> Words:
    return ("train", inputs / "pets", "--baselines", "gcn", "-o", output, *SHORT)


def _communities(inputs: Path, output: Path) -> Words:
    return ("communities", inputs / "pets", "-o", output, *SHORT)


def _tune(inputs: Path, output: Path) -> Words:
    return ("tune", inputs / "pets", "-o", output, "--trials", "3", *SHORT)


def _reproduce(inputs: Path, output: Path) -> Words:
    options = ("--experiments", inputs / "experiments", "--data-dir", inputs, *CPU)
    return ("reproduce", "table-1", "--datasets", "planted", "--jobs", "1", *options, "-o", output)


def _evaluate(inputs: Path, _: Path) -> Words:
    return ("evaluate", inputs / "pets", "--seeds", "3", "--jobs", "1", "--json", *SHORT)


SCENARIOS = {
    "train": Scenario(_train),
    "communities": Scenario(_communities),
    "tune": Scenario(_tune),
    "reproduce": Scenario(_reproduce),
    "evaluate": Scenario(_evaluate),
    "report": Scenario(
        lambda inputs, output: ("report", output),
        lambda inputs, output: shutil.copytree(inputs / "finished", output),
    ),
}


class _Watch:
    """Notes which files of a folder change in this process, and ends it before a chosen change."""

    def __init__(self, folder: Path, last: int | None) -> None:
        self.folder, self.last = str(folder), last
        self.names: list[str] = []
        sys.addaudithook(self)

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in CHANGES or not isinstance(args[CHANGES[event]], str | os.PathLike):
            return
        path = os.fspath(args[CHANGES[event]])
        if not str(path).startswith(self.folder) or (event == "open" and not args[2] & WRITING):
            return
        if len(self.names) == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        name = Path(path).name
        found = re.fullmatch(r"\.(.*)\.[0-9a-f]{8}\.half", name)
        self.names.append(found[1] if found else name)


def _child(words: Words, output: Path, last: int | None) -> int:
    """Run a command slowly in a process of its own, saving after every epoch."""
    sys.stdout.flush()
    with warnings.catch_warnings():
        # Other threads of a test runner hold nothing that the command needs.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    save = fitting.save_state  # type: ignore[attr-defined]

    @functools.wraps(save)
    def save_and_wait(*given: Any) -> None:
        save(*given)
        time.sleep(PAUSE_SECONDS)

    fitting.save_state = save_and_wait  # type: ignore[attr-defined, assignment]
    fitting.SECONDS_BETWEEN_SAVES = 0.0
    watch = _Watch(output, last)
    outcome = vepm(*words)
    said = {"outcome": outcome, "changes": watch.names}
    output.with_suffix(".said").write_text(json.dumps(said))
    os._exit(0)


def _run(words: Words, output: Path) -> tuple[Outcome, list[str]]:
    """What a command said, and the files it changed, in order."""
    assert os.waitpid(_child(words, output, None), 0)[1] == 0, words
    said = read_json(output.with_suffix(".said"))
    return Outcome(*said["outcome"]), said["changes"]


def _kill(words: Words, output: Path, change: int | None, after: float) -> bool:
    """Whether the command was still running when it was killed."""
    pid = _child(words, output, change)
    if change is None:
        time.sleep(after)
        os.kill(pid, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def _in_turn(names: Sequence[str], draw: random.Random) -> list[int]:
    """Changes in an order in which every file has its turn before any has its second."""
    turns: Counter[str] = Counter()
    order = []
    for change in draw.sample(range(len(names)), len(names)):
        order.append((turns[names[change]], change))
        turns[names[change]] += 1
    return [change for _, change in sorted(order, key=lambda pair: pair[0])]


class _Trial:
    """One command, run whole and then killed again and again."""

    def __init__(self, kind: str, inputs: Path, draw: random.Random) -> None:
        self.kind, self.scenario, self.inputs, self.draw = kind, SCENARIOS[kind], inputs, draw
        words, output = self._set_up("whole")
        started = time.monotonic()
        outcome, names = _run(words, output)
        self.seconds = time.monotonic() - started
        assert outcome.code == 0, outcome
        self.expected = self._result(outcome, output)
        self.turns = _in_turn(names, draw)

    def kill(self, number: int) -> str | None:
        """Kill the command and give it again; says what was wrong then, None if it had ended."""
        words, output = self._set_up(str(number))
        timed = number % AT_RANDOM_TIMES == AT_RANDOM_TIMES - 1 or not self.turns
        change = None if timed else self.turns[number % len(self.turns)]
        hit = _kill(words, output, change, self.draw.random() * self.seconds)
        if not hit:
            # The machine is less busy than when the whole run was timed.
            self.seconds *= 0.7
            return None
        try:
            self._check(words, output)
        except (AssertionError, OSError, ValueError) as error:
            when = "at a random time" if change is None else f"before change {change}"
            return f"{self.kind} killed {when}: {error!r}"[:500]
        finally:
            shutil.rmtree(output, ignore_errors=True)
        return ""

    def _check(self, words: Words, output: Path) -> None:
        """Give a killed command again: it ends with the files of one that was never killed."""
        check_readable(output)
        outcome, _ = _run(words, output)
        finished = outcome.code == 2 and "holds a finished run" in outcome.err
        assert outcome.code == 0 or finished, outcome
        check_readable(output)
        (files, printed), (wanted, said) = self._result(outcome, output), self.expected
        differing = {name for name in files.keys() & wanted if files[name] != wanted[name]}
        assert not files.keys() ^ wanted.keys() | differing, differing
        assert printed == said, "printed results differ"
        assert not hidden_in(output), "hidden files are left"

    def _set_up(self, name: str) -> tuple[Words, Path]:
        output = self.inputs / f"{self.kind}-{name}"
        self.scenario.prepare(self.inputs, output)
        return self.scenario.words(self.inputs, output), output

    def _result(self, outcome: Outcome, output: Path) -> Any:
        printed = timeless(json.loads(outcome.out)) if self.kind == "evaluate" else None
        return contents(output), printed


def kill(kills: int, seed: int = 0, kinds: Sequence[str] = tuple(SCENARIOS)) -> dict[str, Any]:
    """So many kills of each command, and what was wrong after each."""
    draw = random.Random(seed)
    with TemporaryDirectory() as name, _few_figures():
        inputs = Path(name)
        write_nodes(inputs / "pets")
        write_toys(inputs / "experiments")
        with without_page():
            succeed("train", inputs / "pets", "-o", inputs / "finished", *SHORT)
        return {kind: _kill_often(kind, inputs, kills, draw) for kind in kinds}


def _kill_often(kind: str, inputs: Path, kills: int, draw: random.Random) -> dict[str, Any]:
    started = time.monotonic()
    # Once in this process, so that those forked from it have loaded what they need.
    SCENARIOS[kind].prepare(inputs, inputs / kind)
    succeed(*SCENARIOS[kind].words(inputs, inputs / kind))
    trial = _Trial(kind, inputs, draw)
    outcomes: list[str] = []
    for number in range(10 * kills):
        if len(outcomes) < kills and (found := trial.kill(number)) is not None:
            outcomes.append(found)
            print(kind, len(outcomes), found, file=sys.stderr, flush=True)
    wrong = [found for found in outcomes if found]
    return {"kills": len(outcomes), "wrong": wrong, "seconds": time.monotonic() - started}


@contextmanager
def _few_figures() -> Iterator[None]:
    def first(*given: Any) -> Any:
        return dict(islice(plan_drawings(*given).items(), FIGURES))

    with mock.patch.object(page, "plan_drawings", first):
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="Of each command.")
    parser.add_argument("--commands", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    what, wrong = "killed, then given again: every file of a command never killed", 0
    for command in chosen.commands:
        found = kill(chosen.kills, chosen.seed, [command])
        wrong += len(found[command]["wrong"])
        keep(chosen.output, what, beside(chosen.output, "commands", found))
    if wrong:
        raise SystemExit(f"{wrong} commands ended otherwise")


if __name__ == "__main__":
    main()

"""Short versions of what ``make soak`` does at length."""

from soak.fuzz import fuzz
from soak.kills import SCENARIOS, kill
from soak.repeat import Sample, judge, repeat
from soak.targets import targets

INPUTS = 2000
KILLS = 4


def test_spoiled_files_are_taken_or_refused_in_one_line() -> None:
    found = fuzz(INPUTS)
    assert found.wrong == []
    assert found.taken.total() + found.refused.total() == INPUTS
    assert set(found.refused) == set(targets())
    assert set(found.taken) == set(targets())


def test_whole_files_are_taken() -> None:
    found = fuzz(len(targets()), spoiling=False)
    assert found.wrong == []
    assert found.refused.total() == 0


def test_killed_runs_end_with_the_numbers_of_whole_ones() -> None:
    assert set(kill(KILLS)["by_command"]) == set(SCENARIOS)


def test_training_predicting_and_reporting_again_leaks_no_descriptor() -> None:
    found = judge(repeat(0, least=2))
    assert found["cycles"] == 2
    assert not found["descriptors_leaked"]


def series(mib_per_cycle: float, descriptors_per_cycle: int) -> list[Sample]:
    """An hour of cycles whose memory wavers by a few MiB."""
    return [
        Sample(60.0 * i, 500 + 3 * (i % 3) + mib_per_cycle * i, 10 + descriptors_per_cycle * i)
        for i in range(60)
    ]


def test_leaks_are_told_from_noise() -> None:
    assert not judge(series(0, 0))["memory_grew"]
    assert not judge(series(0, 0))["descriptors_leaked"]
    assert judge(series(0.5, 0))["memory_grew"]
    assert judge(series(0, 1))["descriptors_leaked"]

"""What brokers and clients get, what is recorded and what is counted is what the corpus says, byte for byte.

A change that is meant to change it brings a corpus recorded again: `python tests/transcripts/record.py`.
"""

import json
from functools import lru_cache

import pytest
from cases import GROUPS, corpus
from player import Transcript, difference, play

CASES = [pytest.param(group, name, id=f"{group}: {name}") for group, cases in GROUPS.items() for name in cases]


@lru_cache
def _read(group: str) -> dict[str, Transcript]:
    transcripts: dict[str, Transcript] = json.loads(corpus(group).read_text())
    return transcripts


@pytest.mark.parametrize(("group", "name"), CASES)
async def test_transcript_is_as_recorded(group: str, name: str) -> None:
    recorded, seen = _read(group)[name], await play(GROUPS[group][name])
    if recorded != seen:
        pytest.fail(difference(recorded, seen, "recorded", "seen"), pytrace=False)


def test_corpus_has_the_cases_and_no_others() -> None:
    recorded = {path.stem: [*_read(path.stem)] for path in corpus("").parent.iterdir()}
    assert recorded == {group: sorted(cases) for group, cases in GROUPS.items()}

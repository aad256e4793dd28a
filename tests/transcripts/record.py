"""Writes the corpus: all that is seen of every case, with the code as it is.

python tests/transcripts/record.py [--uvloop] [GROUP...]
"""

import asyncio
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in (".", "http", "binary")]  # as pytest does

# ruff: noqa: E402
import uvloop
from cases import GROUPS, corpus
from player import play, written


async def record(*groups: str) -> None:
    for group in groups or GROUPS:
        transcripts = {}
        for name, case in GROUPS[group].items():
            try:
                transcripts[name] = await play(case)
            except Exception as fault:
                fault.add_note(f"{group}: {name}")
                raise
        corpus(group).write_text(written(transcripts))


if __name__ == "__main__":
    groups = [argument for argument in sys.argv[1:] if argument != "--uvloop"]
    (uvloop.run if "--uvloop" in sys.argv else asyncio.run)(record(*groups))

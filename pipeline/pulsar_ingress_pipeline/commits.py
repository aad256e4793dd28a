"""Commits: how a batch of files gets into the tables exactly once, whenever the process is killed.

All that a commit brings is written under `_staging/` first. Then its journal, `_commits/NUMBER.pending.json`, is put in
place as a whole: from there on it is decided. Its steps (remove this file, move that one in) can be done again and
again, and when they are done the journal becomes `NUMBER.json`. Whoever comes next does what is left of a pending one,
and throws away what was staged without a journal.

A journal also says which event files it took, with their sizes. Those of many commits are folded into one.
"""

import json
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pulsar_ingress_pipeline.storage import File, Storage

STAGING, COMMITS = "_staging", "_commits"
_PENDING, _DONE = ".pending.json", ".json"
_FOLD = 64
"""So many journals are kept apart; then the files they took are listed in one."""


@dataclass(slots=True)
class Draft:
    """A commit in the making."""

    number: int
    staging: str
    taken: list[File] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    _steps: list[tuple[str, str, str]] = field(default_factory=list)

    def stage(self, name: str) -> str:
        """A folder to write to, of that name."""
        return f"{self.staging}/{name}"

    def move(self, source: str, target: str) -> None:
        self._steps.append((target.rpartition("/")[0], source, target))

    def remove(self, target: str) -> None:
        self._steps.append((target.rpartition("/")[0], "", target))

    def brings(self, folder: str) -> bool:
        return any(source and into == folder for into, source, _ in self._steps)

    def after(self, present: set[str], folder: str) -> set[str]:
        """The files that a folder has afterwards, where it has these now."""
        brought = {target for _, source, target in self._steps if source and target.startswith(f"{folder}/")}
        return present - {target for _, source, target in self._steps if not source} | brought

    def steps(self) -> list[list[str]]:
        """What is removed goes just before what comes in its place, so that readers find neither but for a moment."""
        return [[source, target] for _, source, target in sorted(self._steps)]


class Commits:
    """The journals under a tables' folder. To be used under its lock."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._numbers: list[int] = []
        self._taken: dict[str, int] = {}
        """Event files by URL, with the size that was taken."""

    def recover(self) -> bool:
        """Finish what was begun, clear what was not decided, and learn what was taken; says whether something was."""
        pending = [file.name for file in self._storage.files(COMMITS) if file.name.endswith(_PENDING)]
        for name in pending:
            self._finish(name, json.loads(self._storage.read(f"{COMMITS}/{name}")))
        if self._storage.exists(STAGING):
            self._storage.remove(STAGING)
        self._numbers = sorted(int(file.name.partition(".")[0]) for file in self._storage.files(COMMITS))
        self._taken = {}
        for number in self._numbers:
            journal = json.loads(self._storage.read(f"{COMMITS}/{_name(number, _DONE)}"))
            self._taken.update(journal["taken"])
        return bool(pending)

    @property
    def are_any(self) -> bool:
        return bool(self._numbers)

    def new(self, listed: Iterable[File]) -> list[File]:
        """The files that no commit has taken; one that has another size than then is new."""
        return [file for file in listed if self._taken.get(file.url) != file.size]

    def was_taken(self, url: str) -> bool:
        return url in self._taken

    def draft(self) -> Draft:
        return Draft(self._numbers[-1] + 1 if self._numbers else 1, f"{STAGING}/{uuid.uuid4().hex}")

    def commit(self, draft: Draft, present: Iterable[File] = ()) -> None:
        """Decide, and do. `present` are the event files that are there: others need not be remembered."""
        taken = {file.url: file.size for file in draft.taken}
        folded: list[int] = []
        if len(self._numbers) >= _FOLD:
            here = {file.url for file in present}
            self._taken = {url: size for url, size in self._taken.items() if url in here}
            taken, folded = self._taken | taken, self._numbers
        journal: dict[str, Any] = {
            "commit": draft.number,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "staging": draft.staging,
            "steps": draft.steps(),
            "taken": taken,
            "counts": draft.counts,
        }
        if folded:
            journal["folds"] = folded
        name = _name(draft.number, _PENDING)
        self._storage.write(f"{COMMITS}/{name}", json.dumps(journal))
        self._finish(name, journal)
        self._numbers = [*([] if folded else self._numbers), draft.number]
        self._taken.update(taken)

    def _finish(self, name: str, journal: dict[str, Any]) -> None:
        for source, target in journal["steps"]:
            if source:
                self._storage.move(source, target)
            else:
                self._storage.remove(target)
        for number in journal.get("folds", ()):
            self._storage.remove(f"{COMMITS}/{_name(number, _DONE)}")
        done = {key: value for key, value in journal.items() if key not in ("steps", "staging")}
        self._storage.write(f"{COMMITS}/{name.replace(_PENDING, _DONE)}", json.dumps(done))
        self._storage.remove(f"{COMMITS}/{name}")
        self._storage.remove(journal["staging"])


def _name(number: int, ending: str) -> str:
    return f"{number:09d}{ending}"

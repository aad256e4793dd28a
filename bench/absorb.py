"""Runs the pipeline's own `run` on one folder after the other in one process, and reports the cost of each stage.

    python -m bench.absorb TABLES INBOX FOLDER…

Started by bench.pipeline, in a session of its own: CPU time is that of all its processes, Java's and Python's.
"""

import json
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from bench.processes import SessionClock
from pulsar_ingress_pipeline.progress import Progress
from pulsar_ingress_pipeline.runner import Runner
from pulsar_ingress_pipeline.session import session


@dataclass(slots=True)
class Cost:
    """The cost of one or more stages."""

    cpu: float = 0.0
    wall: float = 0.0

    def __add__(self, other: Self) -> "Cost":
        return Cost(self.cpu + other.cpu, self.wall + other.wall)


@dataclass(slots=True)
class Taken:
    """The cost of ingesting a folder's files, by stage."""

    events: int = 0
    stages: dict[str, Cost] = field(default_factory=dict)

    @classmethod
    def read(cls, line: str) -> Self:
        told = json.loads(line)
        return cls(told["events"], {name: Cost(**cost) for name, cost in told["stages"].items()})

    def cost(self, *prefixes: str) -> Cost:
        return sum((cost for name, cost in self.stages.items() if name.startswith(prefixes or "")), Cost())


class Processes(SessionClock, threading.Thread):
    """CPU time of all our processes. It is read often, because idle workers end after a minute."""

    def __init__(self) -> None:
        SessionClock.__init__(self, os.getsid(0))
        threading.Thread.__init__(self, daemon=True)
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.wait(5):
            self.cpu_seconds()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.join()


class StageClock(Progress):
    """Reads the clocks whenever a stage begins."""

    def measure(self, processes: Processes) -> None:
        self._processes = processes
        self.start()

    def start(self) -> None:
        self.taken, self._name = Taken(), "look"
        self._then = self._now()

    def stage(self, name: str) -> None:
        now = self._now()
        spent = Cost(now.cpu - self._then.cpu, now.wall - self._then.wall)
        self.taken.stages[self._name] = self.taken.stages.get(self._name, Cost()) + spent
        self._name, self._then = name, now

    def _now(self) -> Cost:
        return Cost(self._processes.cpu_seconds(), time.monotonic())


def main(tables: str, inbox: str, *folders: str) -> None:
    Path(inbox).mkdir(parents=True)
    master = f"local[{len(os.sched_getaffinity(0))}]"
    # Ten million events in one commit need more than Java's default of one gigabyte (docs/pipeline.md).
    with (
        Processes() as processes,
        session(master, {"spark.driver.memory": "3g"}) as spark,
    ):
        clock = StageClock()
        clock.measure(processes)
        runner = Runner(inbox, tables, lambda _: spark, clock)
        for folder in folders:
            os.symlink(folder, Path(inbox) / Path(folder).name)
            before = runner.metrics.events.cell()[0]
            clock.start()
            runner.take_new()
            clock.stage("done")
            clock.taken.events = int(runner.metrics.events.cell()[0] - before)
            print(json.dumps(asdict(clock.taken)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

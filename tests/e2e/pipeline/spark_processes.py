"""Spark's own programs from the pyspark package, as processes: a master, workers, a Connect server."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
from processes import free_port
from spark_commands import environment

HOME = Path(pyspark.__file__).parent
READY_SECONDS = 120
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
SERVER_JAR = "spark-internal"  # it is among Spark's own


class Program:
    """One of them, with all that it starts itself, which is killed with it."""

    def __init__(self, folder: Path, *command: str, **variables: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self._log = folder / "log"
        told = {
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder),
            "SPARK_NO_DAEMONIZE": "1",
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=folder, start_new_session=True,
                env=environment(**told, **variables),
            )  # fmt: skip

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def says(self, pattern: str) -> None:
        self.until(lambda: re.search(pattern, self.log) is not None, pattern)

    def until(self, is_so: Callable[[], bool], what: str, seconds: float = READY_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not is_so():
            assert self._process.poll() is None, f"it ended before {what}:\n{self.log[-3000:]}"
            assert time.monotonic() < deadline, f"no {what} within {seconds} s:\n{self.log[-3000:]}"
            time.sleep(0.05)

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Worker(Program):
    """One core, and room for one executor."""

    @property
    def executors(self) -> str:
        """What its executors have said."""
        return "".join(log.read_text(errors="replace") for log in sorted(self.folder.glob("app-*/*/stderr")))

    @property
    def is_amid_tasks(self) -> bool:
        """Whether an executor of it has done a task and is at another."""
        tasks = r"task \d+\.\d+ in stage \d+\.\d+ \(TID (\d+)\)"
        begun, finished = (set(re.findall(f"{word} {tasks}", self.executors)) for word in ("Running", "Finished"))
        return bool(finished) and bool(begun - finished)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A standalone cluster of this machine."""

    url: str
    workers: list[Worker]

    def worker_amid_tasks(self, lasts: Callable[[], bool]) -> Worker:
        """The first whose executor is; as long as there is something to do."""
        while True:
            for worker in self.workers:
                if worker.is_amid_tasks:
                    return worker
            assert lasts(), "all is done, and no worker was seen at work"
            time.sleep(0.02)


@contextmanager
def standalone(folder: Path, workers: int) -> Iterator[Cluster]:
    """A master and workers, which have found each other."""
    spark_class = str(HOME / "bin" / "spark-class")
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    programs: list[Program] = []
    try:
        master = Program(
            folder / "master", spark_class, "org.apache.spark.deploy.master.Master",
            "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0", SPARK_DAEMON_MEMORY="256m",
        )  # fmt: skip
        programs.append(master)
        made = []
        for number in range(workers):
            place = folder / f"worker-{number}"
            worker = Worker(
                place, spark_class, "org.apache.spark.deploy.worker.Worker",
                "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "800m",
                "--work-dir", str(place), url, SPARK_DAEMON_MEMORY="256m",
            )  # fmt: skip
            programs.append(worker)
            made.append(worker)
        for worker in made:
            worker.says("Successfully registered with master")
        yield Cluster(url, made)
    finally:
        for program in programs:
            program.kill()


@contextmanager
def connect_server(folder: Path, *conf: str) -> Iterator[str]:
    """A Spark Connect server with this machine for its cluster; its URL."""
    port = free_port()
    settings = (
        f"spark.connect.grpc.binding.port={port}", "spark.connect.grpc.binding.address=127.0.0.1",
        "spark.ui.enabled=false", "spark.driver.extraJavaOptions=-XX:-DontCompileHugeMethods",
        *conf,
    )  # fmt: skip
    server = Program(
        folder, str(HOME / "bin" / "spark-submit"), "--class", SERVER, "--master", "local[2]",
        "--driver-memory", "1g", *(word for setting in settings for word in ("--conf", setting)), SERVER_JAR,
        PYSPARK_PYTHON=sys.executable,
    )  # fmt: skip
    try:
        server.says("Spark Connect server started")
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.kill()

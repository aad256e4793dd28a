"""What events.flushMillis costs, and how many events a killed sidecar loses.

    python -m bench.flush [--rate N] [--seconds N]

An event log gets events at a steady rate and is then killed with -9, for each setting in a process of its own.
"""

import argparse
import gzip
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pulsar_ingress_proxy.config.model import Events
from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.observability.event_files import Folder
from pulsar_ingress_proxy.observability.event_lines import NO_REDIRECT, client, line, names, origin, shared_words
from pulsar_ingress_proxy.observability.event_log import EventLog

MILLIS = (200, 50, 10, 1)
TICK = 0.001
HEADS = ("flushMillis", "events", "lost by kill -9", "CPU-µs an event", "bytes an event")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=5000, help="events a second (default 5000)")
    parser.add_argument("--seconds", type=float, default=5, help="for each setting (default 5)")
    options = parser.parse_args()
    print(f"| {' | '.join(HEADS)} |\n|{' --- |' * len(HEADS)}")
    for millis in MILLIS:
        with tempfile.TemporaryDirectory(prefix="bench-flush-") as folder:
            figures = killed(Path(folder), millis, options.rate, options.seconds)
        print(f"| {millis} | {' | '.join(figures)} |", flush=True)


def killed(folder: Path, millis: int, rate: int, seconds: float) -> tuple[str, str, str, str]:
    """Events that were added, those that are in no file, and the CPU time and disk space of one."""
    command = [sys.executable, "-c", f"from bench.flush import add; add({str(folder)!r}, {millis}, {rate}, {seconds})"]
    child = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    assert child.returncode == -signal.SIGKILL
    added, cpu = child.stdout.split()
    Folder(str(folder), "bench", True).salvage(time.time())
    files = list(folder.glob("*.gz"))
    kept = sum(gzip.decompress(file.read_bytes()).count(b"\n") for file in files)
    size = sum(file.stat().st_size for file in files)
    return f"{int(added):,}", str(int(added) - kept), f"{float(cpu) / int(added) * 1e6:.1f}", f"{size / kept:.0f}"


def add(folder: str, millis: int, rate: int, seconds: float) -> None:
    """Add events at a rate, and die."""
    log = EventLog(Events(path=folder, flushMillis=millis), "bench", lambda _: None, lambda *_: None)
    log.start()
    words, place, added = shared_words(AccessRecord(status=200)), origin("pulsar", "bench"), 0
    began, cpu = time.monotonic(), time.process_time()
    while (passed := time.monotonic() - began) < seconds:
        while added < passed * rate:
            added += 1
            topic = names("public", "default", f"persistent://public/default/topic-{added * 7919 % 10000}")
            who = client(added, b"Pulsar-Java-v4.2.4")
            log.add(line(words, place, f"id-{added}", time.time(), topic, NO_REDIRECT, 0.001, 0.0008, 0, 280, who))
        time.sleep(TICK)
    print(added, time.process_time() - cpu, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()

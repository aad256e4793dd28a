"""A client that never stops: python steady_client.py URL TOPIC; the end of its input ends it.

It produces numbers, one after the other, and consumes them in a thread of its own. What a broker has not acknowledged
it sends again. To each line of input it says `steady` once a hundred more were acknowledged. At the end it prints, as
one line of JSON, which numbers were acknowledged and never came.
"""

import json
import sys
import threading
import time

import pulsar

PATIENCE = 60
"""Seconds to wait for what was acknowledged."""
PAUSE = 0.005
MORE = 100


class Steady:
    def __init__(self, url: str, topic: str) -> None:
        self._client = pulsar.Client(url, operation_timeout_seconds=60, logger=pulsar.ConsoleLogger())
        earliest = pulsar.InitialPosition.Earliest
        self._consumer = self._client.subscribe(topic, "steady", initial_position=earliest)
        self._producer = self._client.create_producer(topic, send_timeout_millis=20_000)
        self._acknowledged: set[int] = set()
        self._progress = threading.Condition()
        self._consumed: set[int] = set()
        self._failures = 0
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._produce, self._consume)]

    def run(self) -> dict[str, object]:
        for thread in self._threads:
            thread.start()
        for _ in sys.stdin:
            with self._progress:
                enough = len(self._acknowledged) + MORE
                while len(self._acknowledged) < enough:
                    self._progress.wait()
            sys.stdout.write("steady\n")
            sys.stdout.flush()
        self._is_over.set()
        self._threads[0].join()
        deadline = time.monotonic() + PATIENCE
        while self._acknowledged - self._consumed and time.monotonic() < deadline:
            time.sleep(0.1)
        return {
            "acknowledged": len(self._acknowledged),
            "lost": sorted(self._acknowledged - self._consumed),
            "failures": self._failures,
        }

    def _produce(self) -> None:
        number = 0
        while not self._is_over.is_set():
            try:
                self._producer.send(str(number).encode())
            except pulsar.PulsarException:
                self._failures += 1
            else:
                with self._progress:
                    self._acknowledged.add(number)
                    self._progress.notify()
                number += 1
            time.sleep(PAUSE)

    def _consume(self) -> None:
        while True:
            try:
                message = self._consumer.receive(timeout_millis=1000)
                self._consumer.acknowledge(message)
            except pulsar.PulsarException:
                continue
            self._consumed.add(int(message.data()))


if __name__ == "__main__":
    said = Steady(*sys.argv[1:]).run()
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()

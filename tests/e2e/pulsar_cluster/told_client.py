"""A client that does as it is told: python told_client.py URL LOG SECONDS TOKEN CA LISTENER

The last three may be empty. Each line of its input is a call, as JSON: its name and its arguments. It answers with one
line, `{"done": …}`, or `{"failed": …}` with the name of the client's exception.
"""

import json
import re
import sys
from typing import Any

import pulsar


class Told:
    def __init__(self, url: str, log: str, seconds: str, token: str, ca: str, listener: str) -> None:
        self._seconds = int(seconds)
        self._client = pulsar.Client(
            url,
            authentication=pulsar.AuthenticationToken(token) if token else None,
            tls_trust_certs_file_path=ca or None,
            tls_validate_hostname=True,
            operation_timeout_seconds=self._seconds,
            listener_name=listener or None,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Info, log),
        )
        self._producers: dict[str, Any] = {}
        self._consumer: Any = None

    def partitions(self, topic: str) -> list[str]:
        return list(self._client.get_topic_partitions(topic))

    def subscribe(self, topic: str) -> None:
        self._consumer = self._client.subscribe(topic, "told", initial_position=pulsar.InitialPosition.Earliest)

    def subscribe_to_all(self, pattern: str) -> None:
        self._consumer = self._client.subscribe(
            re.compile(pattern),
            "told",
            initial_position=pulsar.InitialPosition.Earliest,
        )

    def produce(self, topic: str, *messages: str) -> None:
        if topic not in self._producers:
            self._producers[topic] = self._client.create_producer(topic)
        for message in messages:
            self._producers[topic].send(message.encode())

    def consume(self, messages: int) -> list[str]:
        return [self._consumed() for _ in range(messages)]

    def consume_until(self, message: str) -> None:
        while self._consumed() != message:
            pass

    def read(self, topic: str, messages: int) -> list[str]:
        reader = self._client.create_reader(topic, pulsar.MessageId.earliest)
        return [reader.read_next(timeout_millis=self._seconds * 1000).data().decode() for _ in range(messages)]

    def _consumed(self) -> str:
        received = self._consumer.receive(timeout_millis=self._seconds * 1000)
        self._consumer.acknowledge(received)
        return str(received.data().decode())


def main(*arguments: str) -> None:
    told = Told(*arguments)
    for line in sys.stdin:
        call, *arguments = json.loads(line)
        try:
            answer = {"done": getattr(told, call)(*arguments)}
        except pulsar.PulsarException as failure:
            answer = {"failed": type(failure).__name__}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

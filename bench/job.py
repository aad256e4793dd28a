"""The job that every proxy in the comparison does, and how to tell that it was done.

A lookup comes in untagged. It must reach the broker with `X-Pulsar-ListenerName: external`, and a redirect to a name
of the inside must leave for the client as that broker's name outside.
"""

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass

from bench.processes import CannotMeasure

HOST = "pulsar.example.com"
LISTENER = "external"
BROKERS = 10
TOPICS = 100  # of each broker: one topic alone would measure a cache
REQUEST_HEADERS = {"Host": HOST, "User-Agent": "Pulsar-Java-v4.2.4", "Accept": "application/json"}


def inside(broker: int | str) -> str:
    """What a broker of a StatefulSet calls itself."""
    return f"pulsar-broker-{broker}.pulsar-broker.pulsar.svc.cluster.local"


def outside(broker: int | str) -> str:
    return f"broker-{broker}.{HOST}"


def redirect_query() -> str:
    """What a 4.x broker appends to a Location; it adds the listener that it was told (TopicLookupBase)."""
    return f"authoritative=true&listenerName={LISTENER}"


def answer(broker: int | str) -> str:
    """A 4.x broker's lookup answer: its binary URLs are on the listener, its httpUrl never is."""
    binary = f"pulsar://{outside(broker)}:6650"
    return json.dumps(
        {
            "brokerUrl": binary,
            "brokerUrlTls": f"pulsar+ssl://{outside(broker)}:6651",
            "httpUrl": f"http://{inside(broker)}:8080",
            "nativeUrl": binary,
            "brokerUrlSsl": "",
        },
        separators=(",", ":"),
    )


@dataclass(frozen=True, slots=True)
class Workload:
    """Lookups of one kind; the broker tells them apart by the topic's name."""

    name: str
    topic: str
    status: int

    def path(self, topic: int, broker: int) -> str:
        return f"/lookup/v2/topic/persistent/public/default/{self.topic}-{topic}-partition-{broker}"

    def paths(self) -> Iterator[str]:
        return (self.path(topic, broker) for topic in range(TOPICS) for broker in range(BROKERS))


ANSWERS = Workload("answers", "owned", 200)
REDIRECTS = Workload("redirects", "moved", 307)
WORKLOADS = (ANSWERS, REDIRECTS)


def verify(name: str, port: int) -> None:
    """Send a few lookups through a proxy; raises CannotMeasure where one comes back other than it should."""
    for workload in WORKLOADS:
        for broker in (0, BROKERS - 1):
            path = workload.path(1, broker)
            status, location, body = ask(port, path)
            if status != workload.status:
                raise CannotMeasure(f"{name}: {path} should be answered {workload.status}, and was {status}: {body!r}")
            wanted = f"https://{outside(broker)}{path}?{redirect_query()}" if workload is REDIRECTS else None
            if location != wanted:
                raise CannotMeasure(f"{name}: {path} should have Location {wanted}, and has {location}")
            if workload is ANSWERS and json.loads(body)["brokerUrl"] != f"pulsar://{outside(broker)}:6650":
                raise CannotMeasure(f"{name}: {path} should be answered with {outside(broker)}, and was with {body!r}")


def ask(port: int, path: str) -> tuple[int, str | None, bytes]:
    """One lookup: status, Location, body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers=REQUEST_HEADERS)
        response = connection.getresponse()
        return response.status, response.getheader("Location"), response.read()
    finally:
        connection.close()

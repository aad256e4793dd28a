"""The job that every proxy in the comparison does, and a check that it does it.

A lookup comes in untagged. It must reach the broker with `X-Pulsar-ListenerName: external`, and a redirect to a
broker's internal name must reach the client as that broker's external name. Other requests pass unchanged.
"""

import http.client
import json
import socket

from bench.processes import CannotMeasure
from bench.traffic import ANSWERS, BROKERS, MIXED, PUTS, REDIRECTS, Traffic, outside, path, redirect_query


def verify(name: str, port: int, traffic: Traffic, is_following: bool = False) -> None:
    """Send a few requests through a proxy; raises CannotMeasure if an answer is wrong."""
    for topic in (0, 2 * BROKERS - 1):
        broker = topic % BROKERS
        status, _, body = ask(port, traffic.one(ANSWERS, topic))
        if status != 200 or json.loads(body)["brokerUrl"] != f"pulsar://{outside(broker)}:6650":
            raise CannotMeasure(
                f"{name}: topic {topic} should be answered with {outside(broker)}, not {status} {body!r}"
            )
        status, location, body = ask(port, traffic.one(REDIRECTS, topic))
        wanted = f"https://{outside(broker)}{path(topic, is_moved=True)}?{redirect_query()}"
        if is_following and (status != 200 or outside(broker).encode() not in body):
            raise CannotMeasure(f"{name}: topic {topic} should be followed to {outside(broker)}, not {status} {body!r}")
        if not is_following and (status, location) != (307, wanted):
            raise CannotMeasure(f"{name}: topic {topic} should be redirected to {wanted}, not {status} {location}")
    for number in range(20):
        status, _, body = ask(port, traffic.one(MIXED, number))
        if status != 200:
            raise CannotMeasure(f"{name}: a mixed request should be answered 200, not {status} {body!r}")
    status, _, body = ask(port, traffic.one(PUTS, 1))
    if status != 204:
        raise CannotMeasure(f"{name}: a PUT should be answered 204, not {status} {body!r}")


def ask(port: int, request: bytes) -> tuple[int, str | None, bytes]:
    """Send one request on a new connection; returns status, Location and body."""
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(request)
        response = http.client.HTTPResponse(connection)
        response.begin()
        return response.status, response.getheader("Location"), response.read()

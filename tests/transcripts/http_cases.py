"""What cases over HTTP are made of: the config, requests, and answers of brokers."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from player import BROKER1, BROKER2, BROKER3, REFUSING, REPETITIONS, Case, Do, Script, Step


def _line(number: int, address: str, *, is_outside: bool = True) -> dict[str, str]:
    outside = (
        "external:https://broker-{n}.pulsar.example.com",
        "external:pulsar+ssl://broker-{n}.pulsar.example.com:6651",
        "partner:http://b{n}.partner.example:8080",
        "partner:https://b{n}.partner.example:8443",
        "partner:pulsar://b{n}.partner.example:6650",
        "partner:pulsar+ssl://b{n}.partner.example:6651",
    )
    urls = (f"internal:http://{address}", f"internal:pulsar://{address}", *(outside if is_outside else ()))
    return {
        "broker": f"broker-{number}.pulsar.svc.cluster.local",
        "listeners": ",".join(urls).replace("{n}", str(number)),
    }


CONFIG: Mapping[str, Any] = {
    "bindAddresses": ["http://127.0.0.1:0", "external:pulsar://127.0.0.1:0"],
    "brokers": {"webServiceUrl": [f"http://{BROKER1}"], "brokerServiceUrl": [f"pulsar://{BROKER1}"]},
    "ingresses": [
        {"name": "public", "hosts": ["pulsar.example.com", "*.pulsar.example.com"], "listener": "external"},
        {
            "name": "partners",
            "hosts": ["partner.example", "*.partner.example"],
            "listener": "partner",
            "allowedListeners": ["partner"],
        },
    ],
    "advertisedListeners": [
        _line(1, BROKER1),
        _line(2, BROKER2),
        _line(3, BROKER3, is_outside=False),
        _line(4, REFUSING),
    ],
    "redirects": {"peers": ["*.peer.example"]},
}

TOPIC = "/lookup/v2/topic/persistent/public/default/orders"
ADMIN = "/admin/v2/namespaces/public/default/topics"
BUNDLE = "/admin/v2/namespaces/public/default/0x00000000_0x40000000/unload"
OUTSIDE = "pulsar.example.com"
NO_INGRESS = "elsewhere.example"
NO_BROKERS = {"webServiceUrl": [f"http://{REFUSING}"], "brokerServiceUrl": [f"pulsar://{REFUSING}"]}
PARTNER_SOCKET = ["partner:http://127.0.0.1:0"]
TOKEN = "Authorization: Bearer secret"


def ask(target: str = TOPIC, *fields: str, host: str = OUTSIDE, method: str = "GET", version: str = "1.1") -> bytes:
    return "\r\n".join((f"{method} {target} HTTP/{version}", f"Host: {host}", *fields, "", "")).encode("latin-1")


def says(status: str, *fields: str, body: str | bytes = "") -> bytes:
    content = body.encode() if isinstance(body, str) else body
    head = "\r\n".join((f"HTTP/1.1 {status}", *fields, f"Content-Length: {len(content)}", "", ""))
    return head.encode() + content


def is_at(number: int = 2, **more: str) -> bytes:
    """A lookup's answer, as brokers of 4.x give it for a listener that they know nothing of."""
    return says("200 OK", "Content-Type: application/json", "Date: today", body=lookup_data(number, **more))


def lookup_data(number: int = 2, **more: str) -> str:
    host = f"broker-{number}.pulsar.svc.cluster.local"
    data = {
        "brokerUrl": f"pulsar://{host}:6650",
        "httpUrl": f"http://{host}:8080",
        "nativeUrl": f"pulsar://{host}:6650",
        "brokerUrlSsl": "",
    }
    return json.dumps({**data, **more}, separators=(",", ":"))


def moved(location: str, status: str = "307 Temporary Redirect") -> bytes:
    return says(status, f"Location: {location}")


def inside(number: int, target: str = f"{TOPIC}?authoritative=true") -> str:
    """The URL by which brokers redirect to each other."""
    return f"http://broker-{number}.pulsar.svc.cluster.local:8080{target}"


OK = says("200 OK", "Content-Type: application/json", body='["persistent://public/default/orders"]')
DONE = b"HTTP/1.1 204 No Content\r\n\r\n"

Answers = Sequence[bytes | Script]


def http(
    *client: Step,
    broker1: Answers = (),
    broker2: Answers = (),
    broker3: Answers = (),
    worker: Answers = (),
    times: int = REPETITIONS,
    **config: Any,
) -> Case:
    """A client that, unless it says more than one request, waits for the answer; keys of the config by their names."""
    answers = {"broker1": broker1, "broker2": broker2, "broker3": broker3, "worker": worker}
    return Case(
        client=(*client, Do.HEAR) if len(client) == 1 else client,
        brokers={name: [(one,) if isinstance(one, bytes) else one for one in given] for name, given in answers.items()},
        config={**CONFIG, **config},
        times=times,
    )


def redirects(**keys: Any) -> dict[str, Any]:
    return {**CONFIG["redirects"], **keys}

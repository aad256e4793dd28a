"""One message, produced and consumed by Apache Pulsar's own Python client (the extra `conformance`)."""

import importlib.util
import secrets
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from pulsar_ingress_proxy.tools.conformance.verdicts import Cause, Verdict, failed, held

if TYPE_CHECKING:
    import pulsar

# By the name of the exception. The way to the broker has been tried by then, so all else is about the broker.
_CAUSES: dict[str, Cause] = {"AuthenticationError": "credentials", "AuthorizationError": "credentials"}


def missing_package() -> str | None:
    """What to do if the `pulsar-client` package, an optional extra, is not installed."""
    if importlib.util.find_spec("pulsar") is not None:
        return None
    return "needs the package 'pulsar-client': pip install 'pulsar-ingress-proxy[conformance]'"


def produce(url: str, topic: str, token: str | None, cacert: str | None, seconds: int) -> Verdict:
    """Subscribe, produce, and wait for the message; the subscription is removed again."""
    import pulsar

    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "client.log")
        try:
            client = pulsar.Client(
                url,
                authentication=pulsar.AuthenticationToken(token) if token is not None else None,
                operation_timeout_seconds=seconds,
                tls_trust_certs_file_path=cacert,
                tls_validate_hostname=True,
                logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(log)),  # or it would write to stdout
            )
            with closing(client):
                return _spoken(client, topic, seconds)
        except pulsar.PulsarException as failure:
            name = type(failure).__name__
            cause = _CAUSES.get(name, "broker")
            if cause == "credentials" and token is None:
                return held(f"reached, not allowed: {name}", is_allowed=False)
            return failed(cause, f"pulsar-client raises {name}: {_last_line(log) or failure}")


def _spoken(client: "pulsar.Client", topic: str, seconds: int) -> Verdict:
    name = f"conformance-{secrets.token_hex(8)}"
    consumer = client.subscribe(topic, name)
    try:
        client.create_producer(topic, send_timeout_millis=seconds * 1000).send(name.encode())
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            received = consumer.receive(timeout_millis=max(1, round(left * 1000)))
            consumer.acknowledge(received)
            if received.data() == name.encode():  # others may use the topic, too
                return held(f"one message through {topic}")
        return failed("broker", f"the message did not come back within {seconds} s")
    finally:
        consumer.unsubscribe()


def _last_line(log: Path) -> str:
    """What the client said last, without its time and source."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return lines[-1].partition(" | ")[2] if lines else ""

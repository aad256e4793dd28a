"""`probe`: one request to a running sidecar, for images without a shell or curl.

Without options it is the image's health check and an exec probe; `--lookup` is what `helm test` asks. It runs every
few seconds, so it imports nothing that takes long.
"""

import argparse
import http.client
import json
import socket
import ssl
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

ADDRESS = "127.0.0.1:9090"
SUMMARY = "ask a running sidecar whether it is alive"
DETAILS = (
    "Exits 0 if /livez answers, otherwise 1. With --lookup it looks one topic up instead and exits 0 if the answer can "
    "be used from outside; redirects are shown, not followed."
)
_WRONG = 1

_MOST_BYTES = 1 << 20

_WHY = {
    400: "the listener is not known, or may not be named here: see `explain`",
    401: "the brokers want credentials: add --header 'Authorization: Bearer …'",
    403: "the credentials do not reach for this topic, or the ingress does not expose lookups",
    404: "there is no such topic, or what answers is not the sidecar",
    502: "the sidecar could not get a usable answer from the brokers: see its log",
    503: "the sidecar has no config in force, or no broker can be reached: see its log",
    504: "the brokers did not answer in time",
}


class Failed(Exception):
    """No usable answer; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: http.client.HTTPMessage
    body: bytes


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="pulsar-ingress-proxy probe", description=f"{SUMMARY.capitalize()}. {DETAILS}"
    )
    add_options(parser)
    return run(parser.parse_args(arguments))


def add_options(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "address", nargs="?", default=ADDRESS, metavar="ADDRESS", help=f"the metrics address of the sidecar ({ADDRESS})"
    )
    where.add_argument("--config", metavar="FILE", help="ask at the metrics.address that this config names")
    lookup_url = "look a topic up: https://pulsar.example.com/lookup/v2/topic/persistent/t/n/topic"
    where.add_argument("--lookup", metavar="URL", help=lookup_url)
    lookup = parser.add_argument_group("with --lookup")
    lookup.add_argument("--header", action="append", default=[], metavar="'Name: value'", help="a header to send")
    lookup.add_argument("--listener", metavar="NAME", help="name a listener, as X-Pulsar-ListenerName")
    lookup.add_argument("--cacert", metavar="FILE", help="the CAs to trust instead of the system's")
    parser.add_argument("--timeout", type=float, metavar="S", help="seconds to wait (3, or 30 with --lookup)")


def run(options: argparse.Namespace) -> int:
    try:
        for line in _livez(options) if options.lookup is None else _lookup(options):
            sys.stdout.write(f"{line}\n")
    except Failed as failure:
        sys.stdout.flush()
        sys.stderr.write(f"{failure}\n")
        return _WRONG
    return 0


def _livez(options: argparse.Namespace) -> Iterator[str]:
    address = options.address if options.config is None else _status_address(options.config)
    url = f"http://{address}/livez"
    reply = _get(url, {}, options.timeout or 3.0)
    if reply.status != 200:
        raise Failed(f"{url} answers {reply.status}: that is not a sidecar's metrics.address")
    yield f"{url}: alive"


def _status_address(path: str) -> str:
    """The status address of `run` with this config, valid or, under --hold, invalid."""
    # Only here: the model takes longer to import than everything else.
    from pulsar_ingress_proxy.config import glean, gleaned_status_address

    try:
        with open(path, encoding="utf-8") as file:
            address = gleaned_status_address(glean(file.read()))
    except (OSError, UnicodeDecodeError):
        address = gleaned_status_address(glean(None))
    host, _, port = address.rpartition(":")
    return f"{ {'0.0.0.0': '127.0.0.1', '[::]': '[::1]'}.get(host, host) }:{port}"  # noqa: S104


def _lookup(options: argparse.Namespace) -> Iterator[str]:
    headers = dict(map(_header, options.header))
    if options.listener is not None:
        headers["X-Pulsar-ListenerName"] = options.listener
    yield f"GET {options.lookup}"
    reply = _get(options.lookup, headers, options.timeout or 30.0, options.cacert)
    yield f"status        {reply.status}"
    for name in ("Location", "X-Request-Id"):
        if (value := reply.headers[name]) is not None:
            yield f"{name:<13} {value}"
    addresses = _addresses(reply)
    for key, url in addresses.items():
        if key != "Location":
            yield f"{key:<13} {url}"
    inside = [f"{key} {url}" for key, url in addresses.items() if _is_inside(key, url)]
    if inside:
        raise Failed(
            f"an address of the inside came back, which no client outside can reach: {', '.join(inside)}. "
            "Has advertisedListeners this broker, and an ingress or lookupListenerName this request? Ask `explain`"
        )
    yield "usable        yes: every address looks as if clients outside could reach it"


def _addresses(reply: Reply) -> dict[str, str]:
    """The addresses that a client would use next; raises Failed if there is none."""
    if reply.status in (301, 302, 303, 307, 308):
        location = reply.headers["Location"]
        if not location:
            raise Failed(f"a {reply.status} without a Location: what answers is not the sidecar")
        return {"Location": location}
    try:
        answer = json.loads(reply.body)
    except (ValueError, RecursionError):
        answer = None
    if reply.status != 200:
        reason = answer.get("reason") if isinstance(answer, dict) else None
        why = reason or _WHY.get(reply.status, "that is no answer to a lookup")
        raise Failed(f"the lookup was answered {reply.status}: {_one_line(str(why))}")
    if not isinstance(answer, dict) or not (answer.get("brokerUrl") or answer.get("brokerUrlTls")):
        raise Failed("a 200 that names no broker: is it a URL of /lookup/v2/topic/…, and does it lead to the sidecar?")
    from pulsar_ingress_proxy.routing.answers import URL_KEYS

    return {key: str(answer[key]) for key in URL_KEYS if answer.get(key)}


def _is_inside(key: str, url: str) -> bool:
    """Whether an address is internal by the sidecar's own rules, or not an address."""
    from pulsar_ingress_proxy.syntax.authorities import is_relative, looks_inside, parse_location
    from pulsar_ingress_proxy.syntax.listeners import parse_service_url

    if key == "Location":
        if is_relative(url):
            return False  # it stays with the host that was asked
        location = parse_location(url)
        return location is None or looks_inside(location.authority.host, ())
    try:
        return looks_inside(parse_service_url(url).host, ())
    except ValueError:
        return True


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip():
        raise Failed(f"--header '{line}' is not a header: write --header 'Name: value'")
    return name.strip(), value.strip()


def _get(url: str, headers: Mapping[str, str], seconds: float, cacert: str | None = None) -> Reply:
    """One GET, without following redirects or using a proxy from the environment."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise Failed(f"{url} is not a URL: {error}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise Failed(f"{url} is not an http or https URL")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection = _connection(parts.scheme, host, port, seconds, cacert)
        try:
            connection.request("GET", target, headers={"User-Agent": "pulsar-ingress-proxy-probe", **headers})
            answer = connection.getresponse()
            return Reply(answer.status, answer.headers, answer.read(_MOST_BYTES))
        finally:
            connection.close()
    except ssl.SSLCertVerificationError as error:
        hint = "" if cacert else "; name its CA with --cacert"
        raise Failed(f"{url}: the certificate is not good: {error.verify_message}{hint}") from None
    except TimeoutError:
        raise Failed(f"{url}: no answer within {seconds:g} s") from None
    except socket.gaierror as error:
        raise Failed(f"{url}: {host} does not resolve: {error.strerror}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Failed(f"{url}: {_one_line(str(error) or type(error).__name__)}") from None


def _connection(
    scheme: str, host: str, port: int | None, seconds: float, cacert: str | None
) -> http.client.HTTPConnection:
    if scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=seconds)
    try:
        context = ssl.create_default_context(cafile=cacert)
    except OSError as error:
        raise Failed(f"--cacert {cacert}: cannot be read: {error.strerror or error}") from None
    return http.client.HTTPSConnection(host, port, timeout=seconds, context=context)


def _one_line(text: str) -> str:
    return " ".join(text.split())

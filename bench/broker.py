"""The broker behind all proxies: HAProxy, which answers from its config.

It is faster than any proxy in the comparison, so that the proxies and not the broker are busy. Each request is a test:
one that lacks the listener's tag, or has a field of another client or another request, gets 403 or 400, which the load
counts as a failure.
"""

import json
from pathlib import Path

from bench.processes import program
from bench.traffic import LISTENER, outside, redirect_query

_DATE = "%[date,http_date]"  # brokers send it, so answers differ from second to second
_BROKER = "%[path,word(-1,-)]"  # the last number of a topic's name is its broker's


def inside(broker: int | str) -> str:
    """The name of a broker of a StatefulSet."""
    return f"pulsar-broker-{broker}.pulsar-broker.pulsar.svc.cluster.local"


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


def broker_config(port: int, reference: str) -> str:
    """`reference` is the header that identifies the client and the request."""
    location = f"http://{inside(_BROKER)}:8080%[path]?{redirect_query()}"
    return f"""\
global
  nbthread 1
defaults
  mode http
  timeout client 60s
  timeout http-keep-alive 60s
frontend broker
  bind 127.0.0.1:{port}
  http-request set-var(txn.client) req.hdr({reference}),field(1,|)
  http-request set-var(txn.path) path
  acl own_address req.hdr(x-forwarded-for,1),strcmp(txn.client) eq 0
  acl own_gateway req.hdr(x-envoy-external-address),strcmp(txn.client) eq 0
  acl own_token req.hdr(authorization),field(2,|),strcmp(txn.client) eq 0
  acl own_path req.hdr({reference}),field(2,|),strcmp(txn.path) eq 0
  acl is_lookup path_beg /lookup/
  acl is_tagged req.hdr(X-Pulsar-ListenerName) -m str {LISTENER}
  http-request return status 400 unless own_address own_gateway own_token own_path
  http-request return status 403 if is_lookup !is_tagged
  http-request return status 204 if METH_PUT
  http-request return status 200 content-type application/json hdr Date {_DATE} string '{{"partitions":0}}' \
if !is_lookup
  http-request return status 307 hdr Date {_DATE} hdr Location '{location}' \
if {{ path_sub /moved- }} !{{ urlp(authoritative) -m str true }}
  http-request return status 200 content-type application/json hdr Date {_DATE} lf-string '{answer(_BROKER)}'
"""


def broker(folder: Path, port: int, reference: str) -> list[str]:
    """Write the config; returns the command."""
    config = folder / "broker.cfg"
    config.write_text(broker_config(port, reference))
    return [program("haproxy"), "-db", "-q", "-f", str(config)]

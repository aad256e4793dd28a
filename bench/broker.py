"""The broker behind all proxies: HAProxy, which answers lookups out of its config.

It is faster than any proxy in the comparison, so that the proxies and not the broker are busy. A lookup without the
listener's name is answered 403, which the load counts as a failure: every request is checked, not only the first.
"""

from pathlib import Path

from bench.job import LISTENER, REDIRECTS, answer, inside, redirect_query
from bench.processes import program

_DATE = "%[date,http_date]"  # brokers send it, and so answers differ from second to second
_PARTITION = "%[path,word(-1,-)]"  # the last number of a topic's name is its broker's


def broker_config(port: int) -> str:
    location = f"http://{inside(_PARTITION)}:8080%[path]?{redirect_query()}"
    return f"""\
global
  nbthread 1
defaults
  mode http
  timeout client 60s
  timeout http-keep-alive 60s
frontend broker
  bind 127.0.0.1:{port}
  http-request return status 403 unless {{ req.hdr(X-Pulsar-ListenerName) -m str {LISTENER} }}
  http-request return status 307 hdr Date {_DATE} hdr Location '{location}' if {{ path_sub /{REDIRECTS.topic}- }}
  http-request return status 200 content-type application/json hdr Date {_DATE} lf-string '{answer(_PARTITION)}'
"""


def broker(folder: Path, port: int) -> list[str]:
    """Write the config, and give the command."""
    config = folder / "broker.cfg"
    config.write_text(broker_config(port))
    return [program("haproxy"), "-db", "-q", "-f", str(config)]

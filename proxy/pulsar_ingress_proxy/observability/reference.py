"""The page of metrics, docs/metrics.md, made from the catalogue by `make docs`."""

import sys

from pulsar_ingress_proxy.observability.catalogue import Catalogue, Metric, Pipeline, Sidecar

_SIDECAR = """\
# Metrics

This page is made by `make docs` from the catalogue that dashboards and alerts take their names from, too:
`proxy/pulsar_ingress_proxy/observability/catalogue.py`. What to alert on is in
[operations.md](operations.md#what-to-alert-on).

## The sidecar
Served as `/metrics` on `metrics.address`, beside `/livez` (the process answers) and `/readyz` (the config is good and
the sockets are bound; brokers are not asked). The process's own metrics (`process_*`, `python_*`) are there too.

Label values come from the config: a `listener` is a name that the config or the address book has, else `other`; a
label with no value is the empty string. `protocol` is `http` or `binary`; `kind` is `lookup`, `admin` or `other`.

"""

_WORDS = """
- `action` of redirects: `rewritten`, `followed`, `passed`, `kept`, `refused`. Each redirect of a followed chain
  counts.
- `where` of leaks: `location`, `body`, `binary`; `action`: `passed` (it could not be mapped), `observed`
  (`leaks: observe`), `blocked`.
- `reason` of misses: `no-rule`, `not-allowed`, `unknown-listener`, `client-named`, `conflicting-names`,
  `bad-listener-name`, `not-exposed`, `overloaded`, `broker-lacks-listener`. Every lookup is one hit or one miss.
- `reason` of upstream errors: `broker-unreachable`, `broker-closed`, `broker-timeout`, `broker-truncated`,
  `bad-answer`; over the binary protocol `broker-rejected` too: the broker would not let the sidecar in.
- `code` of requests is the status; `499` where the client did not wait for an answer.
- Event loop lag: ten times a second a timer is due, and how late it comes is how long anything else would have had to
  wait. A halt of a second counts as ten, as it would for ten requests. It is a histogram because a gauge of the most
  since the last scrape would be another number for everybody who scrapes.
- `result` of reloads: `success`, `failure`; the start is none. While `run --hold` waits for a good config,
  `pulsar_ingress_config_last_reload_successful` is 0.
- `reason` of dropped events: `disk` (it would not take them), `queue-full` (it was too slow), `retention` (written,
  and removed to keep within `events.retainBytes`).
- `source` of address book entries: `config`, `annotation`, `derived`, `admin`.
- `kind` of the discovery metrics is `Ingress`, `Gateway`, `HTTPRoute`, `TLSRoute`, `TCPRoute`, `IstioGateway`,
  `VirtualService`, `Service`, `Pod` or `EndpointSlice`, and `Broker` for `brokers.discover: admin`. A kind that the
  cluster does not have has no sample; without discovery there are none. 0 means that changes are not heard of, and
  what was found before stays in force.
- `reason` of restarts: `ended` (in good order, every five to ten minutes), `expired` (410: listed anew), `closed`,
  `silent` (nothing came for too long), `unreachable` (5xx included), `throttled` (429), `unauthorized`, `forbidden`,
  `refused`, `garbled`.

## The pipeline
`stream --metrics-address HOST:PORT` serves them as `/metrics`. A command that ends by itself, `run` or `stream
--once`, writes them with `--metrics-file PATH` when it does, in the text format and at one stroke: for the textfile
collector of a node exporter, which wants a name that ends in `.prom`.

"""

_PIPELINE_WORDS = """
- Counters begin at 0 with the process, so those in a file are of one run. The times of the last commit and of the
  newest event are those of the tables, whoever made the commit.
- `command` is `run`, `stream` or `once`, which is `stream --once`.
- Lines that are neither new events nor in quarantine were taken before: an id counts once. Of a broken file one line
  in quarantine stands for the rest.
- Waiting are the files that a look has found and that no commit has taken; a commit that is under way has not taken
  its.
- While an attempt fails, `stream` says why, waits, and tries again; `run` and `stream --once` end.
"""


def reference() -> str:
    return "".join([_SIDECAR, _table(Sidecar), _WORDS, _table(Pipeline), _PIPELINE_WORDS])


def _table(catalogue: type[Catalogue]) -> str:
    return "".join(["| metric | kind | labels | meaning |\n|---|---|---|---|\n", *map(_row, catalogue.every())])


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |\n"


if __name__ == "__main__":
    sys.stdout.write(reference())

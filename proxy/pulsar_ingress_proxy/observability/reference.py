"""The metrics page, docs/metrics.md. `make docs` generates it from the catalogue."""

import sys

from pulsar_ingress_proxy.observability.catalogue import Catalogue, Metric, Pipeline, Sidecar

_SIDECAR = """\
# Metrics

`make docs` generates this page from the metrics catalogue, `proxy/pulsar_ingress_proxy/observability/catalogue.py`.
Dashboards and alerts use the same catalogue. [Operations](operations.md#what-to-alert-on) lists the alerts.

## The sidecar
The sidecar serves `/metrics` on `metrics.address`, beside the probes `/livez` and `/readyz`
([Operations](operations.md)). The metrics of the process (`process_*`, `python_*`) are included.

Label values come from the config. A `listener` is a name in the config or the address book, otherwise `other`. A
label without a value is the empty string. `protocol` is `http` or `binary`. `kind` is `lookup`, `admin` or `other`.

"""

_WORDS = """
- `action` of redirects: `rewritten`, `followed`, `passed`, `kept`, `refused`. Each redirect of a followed chain
  counts.
- `where` of leaks: `location`, `body`, `binary`. `action` of leaks: `passed` (the address could not be mapped),
  `observed` (`leaks: observe`), `blocked`.
- `reason` of misses: `no-rule`, `not-allowed`, `unknown-listener`, `client-named`, `conflicting-names`,
  `bad-listener-name`, `not-exposed`, `overloaded`, `broker-lacks-listener`. Every lookup is either one hit or one
  miss.
- `reason` of upstream errors: `broker-unreachable`, `broker-closed`, `broker-timeout`, `broker-truncated`,
  `bad-answer`. The binary protocol also has `broker-rejected`: the broker refused the sidecar's connection.
- `code` of requests is the status. `499` means that the client did not wait for the answer.
- Event loop lag: a timer is due ten times a second, and its delay is how long any other work would have waited. A
  pause of one second counts as ten samples, as it would delay ten requests. It is a histogram because a gauge of the
  maximum since the last scrape would have a different value for each scraper.
- `result` of reloads: `success`, `failure`. The start does not count. While `run --hold` waits for a valid config,
  `pulsar_ingress_config_last_reload_successful` is 0.
- `reason` of dropped events: `disk` (writing failed), `queue-full` (the disk was too slow), `retention` (written, and
  deleted to stay within `events.retainBytes`).
- `source` of address book entries: `config`, `annotation`, `derived`, `admin`.
- `kind` of the discovery metrics is `Ingress`, `Gateway`, `HTTPRoute`, `TLSRoute`, `TCPRoute`, `IstioGateway`,
  `VirtualService`, `Service`, `Pod` or `EndpointSlice`, and `Broker` for `brokers.discover: admin`. A kind that the
  cluster does not have has no sample; without discovery there are no samples. 0 means that the sidecar does not see
  changes, and that earlier results stay in force.
- `reason` of restarts: `ended` (normal, every five to ten minutes), `expired` (410: listed again), `closed`, `silent`
  (no data for too long), `unreachable` (includes 5xx), `throttled` (429), `unauthorized`, `forbidden`, `refused`,
  `garbled`.

## The pipeline
`stream --metrics-address HOST:PORT` serves these metrics as `/metrics`. Commands that end by themselves, `run` and
`stream --once`, write them with `--metrics-file PATH` when they end. The file is in the text format and is replaced
atomically, for the textfile collector of the node exporter, which requires a name that ends in `.prom`.

"""

_PIPELINE_WORDS = """
- Counters start at 0 with the process, so those in a file are for one run. The times of the last commit and of the
  newest event are read from the tables, whichever process made the commit.
- `command` is `run`, `stream`, or `once` for `stream --once`.
- Lines that are neither new events nor in quarantine were ingested before: each id counts once. For a corrupt file,
  one line in quarantine stands for the rest of the file.
- Waiting files are those that were listed and that no commit has ingested. The files of a commit in progress are
  still waiting.
- If an attempt fails, `stream` logs the reason, waits, and tries again. `run` and `stream --once` end.
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

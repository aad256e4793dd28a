"""Our own sidecar in the comparison."""

import re
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import yaml

from bench.broker import inside
from bench.places import Place
from bench.processes import free_ports
from bench.traffic import HOST, LISTENER, outside


def sidecar_config(
    place: Place,
    redirects: str = "rewrite",
    leaks: str = "rewrite",
    ingresses: int = 1,
    brokers: int = 1,
    limits: Mapping[str, int] | None = None,
) -> dict[str, object]:
    """A realistic config: metrics and the event log are on.

    Beyond the first, ingresses and brokers are there to be searched; no request is for them. The first broker is a
    template that stands for all of the load's.
    """
    metrics, console = free_ports(2)
    more_ingresses = [
        {"name": f"team-{n}", "hosts": [f"team-{n}.example.org"], "listener": LISTENER} for n in range(1, ingresses)
    ]
    more_brokers = [
        {
            "broker": f"other-broker-{n}.pulsar.svc.cluster.local",
            "listeners": [f"{LISTENER}:https://other-{n}.{HOST}", f"{LISTENER}:pulsar://other-{n}.{HOST}:6650"],
        }
        for n in range(1, brokers)
    ]
    return {
        "bindAddresses": [f"http://127.0.0.1:{place.port}"],
        "brokers": {"webServiceUrl": [f"http://127.0.0.1:{place.broker}"]},
        "ingresses": [*more_ingresses, {"name": "public", "hosts": [HOST, f"*.{HOST}"], "listener": LISTENER}],
        "advertisedListeners": [
            *more_brokers,
            {
                "broker": inside("{n}"),
                "listeners": [
                    f"internal:http://127.0.0.1:{place.broker}",
                    f"{LISTENER}:https://{outside('{n}')}",
                    f"{LISTENER}:pulsar://{outside('{n}')}:6650",
                    f"{LISTENER}:pulsar+ssl://{outside('{n}')}:6651",
                ],
            },
        ],
        "redirects": {"lookup": redirects, "admin": redirects},
        "leaks": leaks,
        "events": {"path": str(events_folder(place))},
        "metrics": {"address": f"127.0.0.1:{metrics}"},
        "console": {"address": f"127.0.0.1:{console}"},
        "limits": dict(limits or {}),
        "log": {"level": "warning"},
    }


def share_with_tasks(place: Place) -> float:
    """The share of a running sidecar's requests that needed a task."""
    return counted(place, "task_requests") / counted(place, "requests")


def address(place: Place, of: str) -> str:
    """The address of a running sidecar's `metrics` or `console`."""
    return str(yaml.safe_load((place.folder / "config.yaml").read_text())[of]["address"])


def counted(place: Place, name: str) -> float:
    """A counter of a running sidecar, summed over its labels."""
    with urllib.request.urlopen(f"http://{address(place, 'metrics')}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return sum(float(value) for value in re.findall(rf"^pulsar_ingress_{name}_total(?:{{.*}})? (\S+)$", text, re.M))


def events_folder(place: Place) -> Path:
    return place.folder / "events"


def sidecar_command(
    place: Place,
    *python_options: str,
    redirects: str = "rewrite",
    leaks: str = "rewrite",
    ingresses: int = 1,
    brokers: int = 1,
    limits: Mapping[str, int] | None = None,
) -> list[str]:
    """Write the sidecar's config; returns the command that runs it, optionally under a profiler."""
    events_folder(place).mkdir()
    config = sidecar_config(place, redirects, leaks, ingresses, brokers, limits)
    file = place.write("config.yaml", yaml.safe_dump(config))
    return [sys.executable, *python_options, "-m", "pulsar_ingress_proxy", "run", "--config", file]

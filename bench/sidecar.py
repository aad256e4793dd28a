"""Our own sidecar in the comparison."""

import re
import sys
import urllib.request
from pathlib import Path

import yaml

from bench.broker import inside
from bench.places import Place
from bench.processes import free_ports
from bench.traffic import HOST, LISTENER, outside


def sidecar_config(place: Place, redirects: str = "rewrite", leaks: str = "rewrite") -> dict[str, object]:
    """As an operator would have it: metrics and the event log are on."""
    metrics, console = free_ports(2)
    return {
        "bindAddresses": [f"http://127.0.0.1:{place.port}"],
        "brokers": {"webServiceUrl": [f"http://127.0.0.1:{place.broker}"]},
        "ingresses": [{"name": "public", "hosts": [HOST, f"*.{HOST}"], "listener": LISTENER}],
        "advertisedListeners": [
            {
                "broker": inside("{n}"),
                "listeners": [
                    f"internal:http://127.0.0.1:{place.broker}",
                    f"{LISTENER}:https://{outside('{n}')}",
                    f"{LISTENER}:pulsar://{outside('{n}')}:6650",
                    f"{LISTENER}:pulsar+ssl://{outside('{n}')}:6651",
                ],
            }
        ],
        "redirects": {"lookup": redirects, "admin": redirects},
        "leaks": leaks,
        "events": {"path": str(events_folder(place))},
        "metrics": {"address": f"127.0.0.1:{metrics}"},
        "console": {"address": f"127.0.0.1:{console}"},
        "log": {"level": "warning"},
    }


def share_with_tasks(place: Place) -> float:
    """Of the requests that a running sidecar has answered, those that left the straight code for a task."""
    address = yaml.safe_load((place.folder / "config.yaml").read_text())["metrics"]["address"]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    counted = {
        name: sum(float(value) for value in re.findall(rf"^pulsar_ingress_{name}_total(?:{{.*}})? (\S+)$", text, re.M))
        for name in ("task_requests", "requests")
    }
    return counted["task_requests"] / counted["requests"]


def events_folder(place: Place) -> Path:
    return place.folder / "events"


def sidecar_command(
    place: Place, *python_options: str, redirects: str = "rewrite", leaks: str = "rewrite"
) -> list[str]:
    """Write what the sidecar reads, and give the command that runs it, under a profiler perhaps."""
    events_folder(place).mkdir()
    config = place.write("config.yaml", yaml.safe_dump(sidecar_config(place, redirects, leaks)))
    return [sys.executable, *python_options, "-m", "pulsar_ingress_proxy", "run", "--config", config]

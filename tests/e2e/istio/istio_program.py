"""Istio's own code, in a program of ours: what its control plane makes of manifests."""

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from apiclient import Object
from go_modules import CHART_TOOLS, ISTIO, built

SECONDS = 60

Pushed = dict[str, list[Object]]  # listeners, routes, clusters, endpoints, secrets


def push(cluster: Iterable[Object]) -> dict[str, Pushed]:
    """What istiod pushes to the Envoys, by the names of their pods, which have been injected."""
    pushed: dict[str, Pushed] = json.loads(_istio("push", cluster=cluster))
    return pushed


def inject(cluster: Iterable[Object]) -> list[Object]:
    """All of it, its workloads as istiod's webhook would let them in."""
    return documents(_istio("inject", cluster=cluster))


def deploy(cluster: Iterable[Object]) -> list[Object]:
    """What istiod makes of the Gateways of the Gateway API: Deployment, Service and ServiceAccount of each."""
    return documents(_istio("deploy", cluster=cluster))


def charts(folder: Path) -> Path:
    """Istio's charts, unpacked; the folder they are in."""
    _istio("charts", str(folder))
    return folder / "charts"


def rendered(chart: Path, release: str, namespace: str, values: object) -> list[Object]:
    """What helm makes of a chart."""
    command = [built(CHART_TOOLS)["helm4"], "template", release, chart, "--namespace", namespace, "--values", "-"]
    return documents(_run(*map(str, command), text=yaml.safe_dump(values)))


def documents(text: str) -> list[Object]:
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]


def _istio(*arguments: str, cluster: Iterable[Object] = ()) -> str:
    return _run(str(built(ISTIO)["istio"]), *arguments, text="\n---\n".join(map(json.dumps, cluster)))


def _run(*command: str, text: str) -> str:
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr or done.stdout}"
    return done.stdout


def named(objects: Iterable[Object], kind: str, name: str) -> Any:
    """The one of that kind and name."""
    (found,) = (each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found

"""An object store from a folder of manifests, without a cluster.

Files are read as by `kubectl apply -R -f`. As manifests rarely have pods, those of StatefulSets are generated as the
controller would.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.discovery.reconciler.parsing import record_at
from pulsar_ingress_proxy.discovery.reconciler.scope import PodIdentity, Scope
from pulsar_ingress_proxy.discovery.reconciler.store import ObjectStore

_SUFFIXES = (".yaml", ".yml", ".json")
_MOST_PODS = 1000
"""Maximum number of pods generated for a StatefulSet."""

Manifest = Mapping[str, Any]


class BadManifests(Exception):
    """All faults of a folder of manifests, one per line."""


def read_store(folder: str | Path, config: Config) -> ObjectStore:
    """Read all manifests under a folder; raises BadManifests with every fault."""
    objects = list(read_manifests(Path(folder)))
    own = _own_namespace(objects, config)
    store = ObjectStore(config, PodIdentity(own))
    for obj in objects:
        placed = {**obj, "metadata": {"namespace": own, **obj["metadata"]}}
        for one in (placed, *_pods(placed)):
            store.put(one)
    return store


def read_manifests(folder: Path) -> Iterator[Manifest]:
    """All objects of a folder, including those in lists; raises BadManifests with every fault."""
    if not folder.is_dir():
        raise BadManifests(f"{folder}: is not a folder")
    found: list[Manifest] = []
    faults: list[str] = []
    for path in sorted(path for path in folder.rglob("*") if path.suffix in _SUFFIXES and path.is_file()):
        try:
            found += _objects(path, faults)
        except (OSError, UnicodeDecodeError) as error:
            faults.append(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}")
    if faults:
        raise BadManifests("\n".join(faults))
    yield from found


def _objects(path: Path, faults: list[str]) -> list[Manifest]:
    text = path.read_text(encoding="utf-8")
    found: list[Manifest] = []
    number = 0
    try:
        documents = [json.loads(text)] if path.suffix == ".json" else yaml.safe_load_all(text)
        for number, document in enumerate(documents, 1):
            place = f"{path}: document {number}"
            found += _flat(document, place, faults)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        faults.append(f"{path}: document {number + 1}: {_why(error)}")
    return found


def _flat(document: object, place: str, faults: list[str]) -> Iterator[Manifest]:
    """The objects in a document: one, those of a list, or none if it is empty."""
    if document is None:
        return
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str) or "apiVersion" not in document:
        faults.append(f"{place}: is not a Kubernetes object: it needs apiVersion and kind")
    elif document["kind"].endswith("List") and "items" in document:
        for item, one in enumerate(document["items"] or (), 1):
            yield from _flat(one, f"{place}: item {item}", faults)
    elif not isinstance(metadata := document.get("metadata"), dict) or not isinstance(metadata.get("name"), str):
        faults.append(f"{place}: {document['kind']} has no metadata.name")
    else:
        yield document


def _why(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"is not YAML: line {error.problem_mark.line + 1}: {error.problem}"
    if isinstance(error, json.JSONDecodeError):
        return f"is not JSON: line {error.lineno}: {error.msg}"
    return f"cannot be read: {error or type(error).__name__}"


def _own_namespace(objects: Iterable[Manifest], config: Config) -> str:
    """The sidecar's namespace, guessed from the config, else from the namespace of the brokers."""
    if config.kubernetes.namespaces:
        return config.kubernetes.namespaces[0]
    pools = {(pool.service.namespace, pool.service.name) for pool in Scope(config, PodIdentity("")).pools}
    everywhere: set[str] = set()
    behind: set[str] = set()
    for obj in objects:
        namespace, name = obj["metadata"].get("namespace"), obj["metadata"]["name"]
        if isinstance(namespace, str):
            everywhere.add(namespace)
            if obj["kind"] == "Service" and pools & {(namespace, name), ("", name)}:
                behind.add(namespace)
    candidates = behind or everywhere
    return candidates.pop() if len(candidates) == 1 else "default"


def _pods(obj: Manifest) -> Iterator[Manifest]:
    """The pods of a StatefulSet, without addresses."""
    if (obj["apiVersion"], obj["kind"]) != ("apps/v1", "StatefulSet"):
        return
    spec, labels = record_at(obj, "spec"), record_at(obj, "spec", "template", "metadata", "labels")
    first, replicas = record_at(spec, "ordinals").get("start", 0), spec.get("replicas", 1)
    if not isinstance(first, int) or not isinstance(replicas, int):
        return
    for number in range(first, first + min(replicas, _MOST_PODS)):
        name = f"{obj['metadata']['name']}-{number}"
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "namespace": obj["metadata"]["namespace"],
                "name": name,
                "labels": {
                    **labels,
                    "statefulset.kubernetes.io/pod-name": name,
                    "apps.kubernetes.io/pod-index": str(number),
                },
            },
            "spec": {**record_at(spec, "template", "spec"), "hostname": name, "subdomain": spec.get("serviceName")},
        }

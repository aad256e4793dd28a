"""What deploy/ has, for the tests that hold it to what it should be."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pulsar_ingress_proxy.config import Config, load_mapping

Object = dict[str, Any]

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
FILES = sorted(path for folder in ("istio", "ingress-nginx", "compose") for path in (DEPLOY / folder).rglob("*.yaml"))
NEEDED = ["lookup", "client"]


def name(path: Path) -> str:
    return str(path.relative_to(DEPLOY))


def documents(path: Path | str) -> list[Any]:
    return [document for document in yaml.safe_load_all((DEPLOY / path).read_text()) if document is not None]


def one(path: Path | str, kind: str) -> Object:
    (found,) = (document for document in documents(path) if document["kind"] == kind)
    return dict(found)


def config_texts() -> Iterator[tuple[str, str]]:
    for path in FILES:
        if path.parts[-2:] == ("sidecar", "config.yaml"):
            yield name(path), path.read_text()
        elif path.name == "configmap.yaml":
            yield name(path), one(path, "ConfigMap")["data"]["config.yaml"]


CONFIGS = dict(config_texts())
every_config = pytest.mark.parametrize("place", CONFIGS)


def config(place: str) -> Config:
    return load_mapping(yaml.safe_load(CONFIGS[place]))


def patched_pod(path: str) -> Object:
    (document,) = documents(path)
    return {
        "initContainers": document["controller"]["extraInitContainers"],
        "volumes": document["controller"]["extraVolumes"],
    }

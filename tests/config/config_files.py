"""Reads configs and their faults from files of a test."""

from pathlib import Path

import pytest

from pulsar_ingress_proxy.config import Config, ConfigFaults, load

LEAST = "brokers: {webServiceUrl: [http://pulsar-broker:8080]}\n"


def read(tmp_path: Path, text: str, **environ: str) -> Config:
    path = tmp_path / "sidecar.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path, environ)


def faults(tmp_path: Path, text: str, **environ: str) -> list[str]:
    """The faults of a file, whose name is left out."""
    with pytest.raises(ConfigFaults) as raised:
        read(tmp_path, text, **environ)
    return [fault.replace(str(tmp_path / "sidecar.yaml"), "") for fault in raised.value.faults]

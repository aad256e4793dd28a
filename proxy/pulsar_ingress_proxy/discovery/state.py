"""The last known result on disk, to start with while the API server is unreachable.

A file that is incomplete, of another version or from another config is ignored.
"""

import hashlib
import json
import logging
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.routing.discovered import NOTHING, Discovered

log = logging.getLogger("proxy.discovery")

FILE = "discovery.json"
_VERSION = 1
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Known:
    """The results of all sources of discovery."""

    observed: Discovered = NOTHING
    """From Kubernetes."""
    reported: Discovered = NOTHING
    """From the brokers."""
    zone: str | None = None


_KNOWN = TypeAdapter(Known)


class State:
    """A file in `kubernetes.statePath`. Its methods block."""

    def __init__(self, config: Config) -> None:
        assert config.kubernetes.state_path is not None
        self._file = Path(config.kubernetes.state_path, FILE)
        self._config = _fingerprint(config)
        self._is_well = True
        self._writing = threading.Lock()

    def read(self) -> Known | None:
        """The last written result, if it is valid."""
        try:
            with self._file.open("rb") as file:
                data = file.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("kubernetes.statePath: %s cannot be read: %s", self._file, error.strerror)
            return None
        try:
            return self._understood(data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            why = "is not whole" if isinstance(error, ValidationError) else str(error) or "is not whole"
            log.warning("kubernetes.statePath: %s is not used: it %s", self._file, why)
            return None

    def _understood(self, data: bytes) -> Known:
        if len(data) > _MOST_BYTES:
            raise ValueError(f"has more than {_MOST_BYTES} bytes")
        try:
            state = json.loads(data)
        except (ValueError, RecursionError):
            raise ValueError("is not whole") from None
        if state["version"] != _VERSION:
            raise ValueError(f"is of version {state['version']}, not {_VERSION}")
        if state["config"] != self._config:
            raise ValueError("was written under another config")
        known = state["known"]
        for broker in (*known["observed"]["brokers"], *known["reported"]["brokers"]):
            broker["sources"] = {tuple(key.split(",")): source for key, source in broker["sources"].items()}
        return _KNOWN.validate_python(known)

    def write(self, known: Known) -> None:
        """Replace the file atomically; a failure is logged once."""
        state = {"version": _VERSION, "config": self._config, "known": _KNOWN.dump_python(known, mode="json")}
        data = json.dumps(state, separators=(",", ":")).encode()
        unfinished = self._file.with_name(f".{FILE}.{os.getpid()}")
        try:
            if len(data) > _MOST_BYTES:
                raise OSError(0, f"{len(data)} bytes are too many")
            with self._writing:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                unfinished.replace(self._file)
        except OSError as error:
            if self._is_well:
                log.warning("kubernetes.statePath: %s cannot be written: %s", self._file, error.strerror)
            self._is_well = False
            with suppress(OSError):
                unfinished.unlink()
        else:
            self._is_well = True


def _fingerprint(config: Config) -> str:
    """A hash of all keys that affect discovery: a result under other keys may contain what these exclude."""
    keys = config.model_dump(mode="json", include={"kubernetes", "brokers", "internal_listener_name"})
    del keys["kubernetes"]["state_path"]
    return hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest()

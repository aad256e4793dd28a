"""Credentials for the API server: a given kubeconfig, the pod's service account, or the user's kubeconfig.

This is the order of Kubernetes' own tools. The `kubernetes` package reads the files, including plugins and rotated
tokens.
"""

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import KUBE_CONFIG_DEFAULT_LOCATION, ConfigException, load_incluster_config, load_kube_config

_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_KEPT_ALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""Detects a dead peer within half a minute, like the pings of client-go."""


class NoCredentials(Exception):
    """The credentials cannot be read."""


class Credentials:
    """The location of the credentials; their files are read for each new client."""

    def __init__(self, kubeconfig: str | None = None, context: str | None = None) -> None:
        self._kubeconfig = kubeconfig or os.environ.get("KUBECONFIG") or None
        self._context = context
        self.in_pod = self._kubeconfig is None and bool(os.environ.get("KUBERNETES_SERVICE_HOST"))

    def __str__(self) -> str:
        return "the pod's service account" if self.in_pod else self._kubeconfig or KUBE_CONFIG_DEFAULT_LOCATION

    async def client(self) -> tuple[ApiClient, str]:
        """A new client, and the namespace of the credentials; raises NoCredentials."""
        configuration = Configuration()
        configuration.disable_strict_ssl_verification = True  # many clusters' CAs do not fully comply with RFC 5280
        try:
            namespace = await self._load(configuration)
            client = ApiClient(configuration)
            client.rest_client = _Rest(configuration)
        except OSError as error:
            why = f"{error.filename}: {error.strerror}" if error.filename is not None else str(error)
            raise NoCredentials(f"{self}: {why}") from None
        except (ConfigException, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
            raise NoCredentials(f"{self}: {' '.join(str(error).split())}") from None
        client.user_agent = "pulsar-ingress-proxy"
        return client, namespace

    async def _load(self, configuration: Configuration) -> str:
        if self.in_pod:
            load_incluster_config(configuration)  # reads the token every minute, as projected tokens rotate
            return await asyncio.to_thread(_pod_namespace)
        await asyncio.to_thread(_check_exists, str(self))
        loader = await load_kube_config(
            self._kubeconfig, self._context, client_configuration=configuration, persist_config=False
        )
        return str(loader.current_context["context"].get("namespace") or "default")


class _Rest(RESTClientObject):
    """Without a limit of connections, as each watch has one, and with TCP keep-alive."""

    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(limit=0, ssl=self.ssl_context, socket_factory=_kept_alive)


def _kept_alive(address: tuple[Any, ...]) -> socket.socket:
    made = socket.socket(*address[:3])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEPT_ALIVE.items():
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


def _pod_namespace() -> str:
    return _NAMESPACE.read_text().strip() if _NAMESPACE.exists() else "default"


def _check_exists(kubeconfig: str) -> None:
    """Raise FileNotFoundError if none of the files exists; the package would report a missing key."""
    files = [Path(file).expanduser() for file in kubeconfig.split(os.pathsep) if file]
    if not any(file.exists() for file in files):
        raise FileNotFoundError("there is no such file")

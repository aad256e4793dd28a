"""The `kubernetes` package: an extra, and imported only when a cluster is looked at, as it takes a second and 60 MB."""

import importlib.util


def missing() -> str | None:
    """What to do where it is not installed."""
    if importlib.util.find_spec("kubernetes") is not None:
        return None
    return "needs the package 'kubernetes': pip install 'pulsar-ingress-proxy[kubernetes]'"

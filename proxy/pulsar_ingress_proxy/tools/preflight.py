"""What a start needs beside the config and its sockets: certificates, keys and packages. `check` asks for the same."""

from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.discovery.manager import missing_package
from pulsar_ingress_proxy.net.tls import BrokerTls, CannotLoad, ServerTls


class CannotStart(Exception):
    """A socket, a file or a package that the config requires is not available; one line per fault."""


def prepare(config: Config) -> tuple[BrokerTls, ServerTls | None]:
    """What a start needs beside the config and its sockets; raises CannotStart with every fault, for `check` too."""
    faults: list[str] = []
    server: ServerTls | None = None
    brokers: BrokerTls | None = None
    try:
        server = ServerTls(config.tls) if config.tls.certificate is not None else None
    except CannotLoad as fault:
        faults += fault.faults
    try:
        brokers = BrokerTls(config)
    except CannotLoad as fault:
        faults += fault.faults
    if config.kubernetes.enabled and (problem := missing_package()) is not None:
        faults.append(f"kubernetes.enabled: {problem}")
    if faults or brokers is None:
        raise CannotStart("\n".join(faults))
    return brokers, server

"""Brokers as their configuration makes them: what they are called inside and outside, and their broker.conf."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from artifacts import DEFAULT, RELEASES, Release
from credentials import Tokens
from networks import GATEWAY

CLUSTER = "c1"
HOST = "pulsar.example.com"
PARTNER_HOST = "partner.example.net"
HOST_PORT, HOST_TLS_PORT = 8080, 8443
METADATA = "zk:127.0.0.1:2181"
LoadManager = Literal["modular", "extensible"]
_BALANCE = "org.apache.pulsar.broker.loadbalance"
LOAD_MANAGERS: Mapping[LoadManager, Mapping[str, str]] = {
    "modular": {"loadManagerClassName": f"{_BALANCE}.impl.ModularLoadManagerImpl"},
    "extensible": {
        "loadManagerClassName": f"{_BALANCE}.extensions.ExtensibleLoadManagerImpl",
        "loadBalancerLoadSheddingStrategy": f"{_BALANCE}.extensions.scheduler.TransferShedder",
    },
}


@dataclass(frozen=True, slots=True)
class Options:
    """What a cluster is to be like."""

    line: str = DEFAULT  # of RELEASES
    load_manager: LoadManager = "modular"
    brokers: int = 3
    tls: bool = False  # web and binary ports with TLS, beside the plain ones
    authorization: bool = False  # tokens, and authorization by them; `admin` is the superuser
    proxy_roles: tuple[str, ...] = ()
    trust_forwarded_for: bool = False
    partner: bool = False  # a third listener, with an ingress of its own
    transactions: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)  # further keys of broker.conf, for all
    conf_of: Mapping[int, Mapping[str, str]] = field(default_factory=dict)  # and for one of them

    @property
    def release(self) -> Release:
        return RELEASES[self.line]


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker's addresses: all ports are the usual ones inside; outside, the port tells the broker."""

    number: int

    @property
    def name(self) -> str:
        return f"pulsar-broker-{self.number}.pulsar-broker.pulsar.svc.cluster.local"

    @property
    def address(self) -> str:
        return f"10.96.0.{10 + self.number}"

    @property
    def web(self) -> str:
        return f"http://{self.name}:8080"

    @property
    def web_tls(self) -> str:
        return f"https://{self.name}:8443"

    @property
    def service(self) -> str:
        return f"pulsar://{self.name}:6650"

    @property
    def service_tls(self) -> str:
        return f"pulsar+ssl://{self.name}:6651"

    @property
    def external_name(self) -> str:
        return f"broker-{self.number}.{HOST}"

    @property
    def external_web(self) -> str:
        return f"http://{self.external_name}:{HOST_PORT}"

    @property
    def external_web_tls(self) -> str:
        return f"https://{self.external_name}:{HOST_TLS_PORT}"

    @property
    def external_service(self) -> str:
        return f"pulsar://{self.external_name}:{6650 + self.number}"

    @property
    def external_service_tls(self) -> str:
        return f"pulsar+ssl://{self.external_name}:{6670 + self.number}"

    @property
    def partner_name(self) -> str:
        return f"broker-{self.number}.{PARTNER_HOST}"

    @property
    def partner_service(self) -> str:
        return f"pulsar://{self.partner_name}:{6690 + self.number}"

    def routes(self, options: Options) -> list[str]:
        """How the binary protocol comes in from outside, as tcp_routes.py wants it."""
        plain = f"{GATEWAY}:{6650 + self.number}={self.address}:6650"
        tls = f"{GATEWAY}:{6670 + self.number}={self.address}:6651"
        partner = f"{GATEWAY}:{6690 + self.number}={self.address}:6650"
        return [plain, *([tls] if options.tls else []), *([partner] if options.partner else [])]

    def listeners(self, options: Options) -> str:
        urls = [f"internal:{self.service}", f"external:{self.external_service}"]
        if options.tls:
            urls += [f"internal:{self.service_tls}", f"external:{self.external_service_tls}"]
        if options.partner:
            urls += [f"partner:{self.partner_service}"]
        if options.release.has_web_listeners:
            urls += [f"external:{self.external_web}"]
            urls += [f"external:{self.external_web_tls}"] if options.tls else []
        return ",".join(urls)

    def conf(self, options: Options, folder: Path, tokens: Tokens) -> dict[str, str]:
        return {
            "clusterName": CLUSTER,
            "metadataStoreUrl": METADATA,
            "configurationMetadataStoreUrl": METADATA,
            "bindAddress": self.address,
            "advertisedAddress": self.name,
            "webServicePort": "8080",
            "brokerServicePort": "6650",
            "advertisedListeners": self.listeners(options),
            "internalListenerName": "internal",
            # One bookie.
            "managedLedgerDefaultEnsembleSize": "1",
            "managedLedgerDefaultWriteQuorum": "1",
            "managedLedgerDefaultAckQuorum": "1",
            **LOAD_MANAGERS[options.load_manager],
            # Bundles stay where tests put them.
            "loadBalancerSheddingEnabled": "false",
            "loadBalancerAutoBundleSplitEnabled": "false",
            "functionsWorkerEnabled": "false",
            "brokerShutdownTimeoutMs": "10000",
            "webServiceTrustXForwardedFor": str(options.trust_forwarded_for).lower(),
            **({"transactionCoordinatorEnabled": "true"} if options.transactions else {}),
            **(_tls(folder) if options.tls else {}),
            **(_authorization(options, tokens) if options.authorization else {}),
            **options.conf,
            **options.conf_of.get(self.number, {}),
        }


def _tls(folder: Path) -> dict[str, str]:
    return {
        "webServicePortTls": "8443",
        "brokerServicePortTls": "6651",
        "tlsCertificateFilePath": str(folder / "broker.crt"),
        "tlsKeyFilePath": str(folder / "broker.key"),
        "tlsTrustCertsFilePath": str(folder / "ca.crt"),
    }


def _authorization(options: Options, tokens: Tokens) -> dict[str, str]:
    return {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        "tokenSecretKey": tokens.secret_key,
        "superUserRoles": "admin,broker",
        "proxyRoles": ",".join(options.proxy_roles),
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"token:{tokens.of('broker')}",
    }

"""The config's keys, types, defaults and units: the one source of the JSON schema and the reference.

Keys are camelCase, with the broker's own names where the broker has one.
"""

import ipaddress
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import combinations
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from pulsar_ingress_proxy.syntax.authorities import Network, parse_authority
from pulsar_ingress_proxy.syntax.listeners import (
    BINARY_SCHEMES,
    TLS_SCHEMES,
    VARIABLE,
    WEB_SCHEMES,
    BindAddress,
    ServiceUrl,
    SyntaxFaults,
    Urls,
    check_name,
    is_bindable,
    is_host,
    is_one_socket,
    parse_advertised_listeners,
    parse_bind_addresses,
    parse_service_url,
)
from pulsar_ingress_proxy.syntax.selectors import parse_selector

Exposable = Literal["lookup", "client", "admin", "topics", "ws", "functions"]
"""Areas of the brokers' HTTP API; `client` are the GETs that clients make."""

_SPIFFE_ID = re.compile(r"spiffe://[a-z0-9._-]+(/[A-Za-z0-9._-]+)*")  # SPIFFE-ID 2: no port, no query, no empty segment
_SPIFFE_EXAMPLE = "spiffe://cluster.local/ns/pulsar/sa/broker"

_GATEWAY_NAME = re.compile(r"[A-Za-z0-9.-]+(/[a-z0-9-]+/[a-z0-9.-]+)?")
_GATEWAY_EXAMPLE = "gateway/istio-system/public, or an ingress class, as in nginx"


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"should be {what}, as text")
    return value


def _listener_name(value: object) -> str:
    return check_name(_text(value, "a listener's name"))


def _optional_name(value: object) -> str | None:
    return None if value is None or value == "" else _listener_name(value)


def _bind_addresses(value: object) -> tuple[BindAddress, ...]:
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value)):
        addresses = parse_bind_addresses(value)
        _refuse(_unbindable(addresses))
        return addresses
    raise ValueError("should be a list of [name:]scheme://host:port")


def _unbindable(addresses: tuple[BindAddress, ...]) -> Iterator[str]:
    for address in addresses:
        if not is_bindable(address.host):
            yield f"'{address}' cannot be bound: a label of a host has 63 letters at most"
    for one, other in combinations(addresses, 2):
        if is_one_socket(one.host, one.port, other.host, other.port):
            yield f"{one} and {other} are one socket, which can be bound once: give each its own port"


def _file_path(value: str) -> str:
    if not value.isprintable():
        raise ValueError(f"{value!r} is not a path: it has characters that cannot be printed")
    return value


def _listener_urls(value: object) -> dict[str, dict[str, ServiceUrl]]:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = ",".join(value)
    return parse_advertised_listeners(_text(value, "name:scheme://host:port,…"))


def _ingress_host(value: object) -> str:
    host = _text(value, "a host").lower().removesuffix(".")
    if not is_host(host.removeprefix("*.")):
        raise ValueError(f"'{host}' is not a host: write pulsar.example.com or *.pulsar.example.com, without a port")
    return host


def _host_suffix(value: object) -> str:
    return _ingress_host(_text(value, "a domain").removeprefix("*").removeprefix("."))


def _network(value: object) -> Network:
    try:
        return ipaddress.ip_network(_text(value, "an address or network"), strict=False)
    except ValueError:
        raise ValueError(f"'{value}' is not an address or a network: write 10.0.0.0/8 or ::1") from None


def _address(value: object) -> str:
    authority = parse_authority(_text(value, "host:port"))
    if authority is None or authority.port is None or not is_bindable(authority.host):
        raise ValueError(f"'{value}' is not an address to bind: write host:port, as in 0.0.0.0:9090")
    return str(authority)


def _optional_address(value: object) -> str | None:
    return None if value is None or value == "" else _address(value)


def _broker_name(value: object) -> str:
    name = _text(value, "what the broker calls itself")
    if parse_authority(VARIABLE.sub("0", name)) is None:
        raise ValueError(f"'{name}' is not a broker's name: write host or host:port, where {{n}} may stand for a word")
    return name


def _spiffe_id(value: object) -> str | None:
    if value is None:
        return None
    if not _SPIFFE_ID.fullmatch(text := _text(value, "a spiffe:// URI")):
        raise ValueError(f"'{text}' is not a SPIFFE ID: write spiffe://trust-domain/path, e.g. {_SPIFFE_EXAMPLE}")
    return text


def _gateway_name(value: object) -> str:
    name = _text(value, "a gateway or an ingress class")
    if not _GATEWAY_NAME.fullmatch(name):
        raise ValueError(f"'{name}' is no gateway: write kind/namespace/name, as in {_GATEWAY_EXAMPLE}")
    return name


def _label_selector(value: object) -> str | None:
    if value is None or value == "":
        return None
    parse_selector(text := _text(value, "a label selector"))
    return text


def _split(value: object) -> object:
    return [part for raw in value.split(",") if (part := raw.strip())] if isinstance(value, str) else value


def _urls_of(*schemes: str) -> BeforeValidator:
    def check(value: object) -> str:
        url = parse_service_url(_text(value, "a URL"))
        if url.scheme not in schemes:
            raise ValueError(f"'{value}' should begin with {' or '.join(scheme + '://' for scheme in schemes)}")
        return str(url)

    return BeforeValidator(check)


ListenerName = Annotated[str, BeforeValidator(_listener_name)]
OptionalListenerName = Annotated[str | None, BeforeValidator(_optional_name)]
BindAddresses = Annotated[
    tuple[BindAddress, ...],
    PlainValidator(_bind_addresses),
    WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}),
]
ListenerUrls = Annotated[
    dict[str, Urls],
    PlainValidator(_listener_urls),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
IngressHost = Annotated[str, BeforeValidator(_ingress_host)]
TrustedNetwork = Annotated[Network, PlainValidator(_network), WithJsonSchema({"type": "string"})]
Address = Annotated[str, BeforeValidator(_address)]
OptionalAddress = Annotated[str | None, BeforeValidator(_optional_address)]
WebUrls = Annotated[tuple[Annotated[str, _urls_of("http", "https")], ...], BeforeValidator(_split)]
BinaryUrls = Annotated[tuple[Annotated[str, _urls_of("pulsar", "pulsar+ssl")], ...], BeforeValidator(_split)]
BrokerName = Annotated[str, BeforeValidator(_broker_name)]
SpiffeId = Annotated[str | None, BeforeValidator(_spiffe_id)]
GatewayName = Annotated[str, BeforeValidator(_gateway_name)]
HostSuffix = Annotated[str, BeforeValidator(_host_suffix)]
LabelSelector = Annotated[str | None, BeforeValidator(_label_selector)]
FilePath = Annotated[str, AfterValidator(_file_path)]
Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]


class Section(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True, populate_by_name=False)


class ServerTls(Section):
    """Certificates of the https and pulsar+ssl sockets."""

    certificate: FilePath | None = Field(
        None, description="PEM file with the certificate chain; taken up again when it changes"
    )
    key: FilePath | None = Field(None, description="PEM file with its key")
    client_ca: FilePath | None = Field(None, description="PEM file; set: clients must show a certificate of this CA")


class BrokerTls(Section):
    """TLS towards brokers."""

    ca: FilePath | None = Field(None, description="PEM file; unset: the system's CAs")
    certificate: FilePath | None = Field(
        None, description="PEM file with the sidecar's own certificate, shown to all brokers"
    )
    key: FilePath | None = Field(None, description="PEM file with its key")
    peer_identity: SpiffeId = Field(
        None, description="a spiffe:// URI expected in brokers' certificates instead of the host name"
    )


class Brokers(Section):
    """The brokers behind this sidecar."""

    web_service_url: WebUrls = Field(
        (), description="where HTTP goes; one or several, needed by http and https sockets"
    )
    broker_service_url: BinaryUrls = Field(
        (), description="where the binary protocol goes; one or several, needed by pulsar and pulsar+ssl sockets"
    )
    tls: BrokerTls = Field(BrokerTls(), description="TLS towards brokers")
    trust_original_principal: bool = Field(
        False,
        description="false: X-Original-Principal and the binary original_* fields of clients are removed",
    )
    discover: Literal["none", "admin"] = Field("none", description="admin: ask the brokers which listeners they have")
    admin_token_file: FilePath | None = Field(
        None, description="file with the token for that, read anew each time; unset: asked without one"
    )


class FunctionWorkers(Section):
    """Function workers that run apart from brokers."""

    web_service_url: WebUrls = Field((), description="where the function paths go; empty: to the brokers")


class IngressConfig(Section):
    """Where clients come in."""

    name: str = Field(min_length=1, description="its name in metrics and events")
    hosts: tuple[IngressHost, ...] = Field((), description="its hosts; *. stands for one label or more")
    listener: ListenerName = Field(description="the listener of what comes through it")
    allowed_listeners: tuple[ListenerName, ...] | None = Field(
        None, description="what clients behind it may name; unset: any known listener but the internal one"
    )
    expose: tuple[Exposable, ...] | None = Field(
        None, description="what may come through, client being the GETs that clients make; unset: everything"
    )
    lookup_properties: dict[str, str] = Field({}, description="PIP-368 properties added to binary lookups")
    override_lookup_properties: bool = Field(False, description="true: ours win over the client's")
    through_sidecar: bool = Field(
        False,
        description="binary: clients reach brokers through this socket; no address in an answer or redirect leads past "
        "it, known or not",
    )


class BrokerListeners(Section):
    """A line of the address book."""

    broker: BrokerName = Field(description="what the broker calls itself, or a template of it")
    listeners: ListenerUrls = Field(description="its addresses, as in a broker's advertisedListeners (PIP-61)")

    @model_validator(mode="after")
    def _variables_are_bound(self) -> "BrokerListeners":
        bound = {match[1].lower() for match in VARIABLE.finditer(self.broker)}
        _refuse(
            f"{url} has {match[0]}, but 'broker' has no {{{match[1]}}} to take it from"
            for urls in self.listeners.values()
            for url in urls.values()
            for match in VARIABLE.finditer(url.authority)
            if match[1] not in bound
        )
        return self


class Redirects(Section):
    """What becomes of brokers' redirects."""

    lookup: Literal["rewrite", "follow", "pass"] = Field("rewrite", description="redirects of lookups")
    admin: Literal["rewrite", "follow", "pass"] = Field("rewrite", description="redirects of everything else")
    unmapped: Literal["follow", "refuse", "pass"] = Field(
        "follow",
        description="redirects that the address book has no answer to; a name nobody knows is never dialled",
    )
    max_hops: Count = Field(5, description="redirects followed for one request; beyond: 502")
    replay_bytes: Annotated[int, Field(ge=0)] = Field(
        5242880, description="bytes of a request's body kept to be sent again; a larger one is sent once"
    )
    peers: tuple[IngressHost, ...] = Field((), description="hosts of peer clusters: their Locations pass")


class Kubernetes(Section):
    """Discovery of ingresses and brokers."""

    enabled: bool = Field(False, description="watch the cluster")
    namespaces: tuple[str, ...] = Field((), description="namespaces to watch; empty: the sidecar's own")
    gateways: tuple[GatewayName, ...] = Field(
        (), description="kind/namespace/name or ingress class this sidecar stands beside; empty: every annotated object"
    )
    broker_selector: LabelSelector = Field(
        None, description="labels of the brokers' pods; unset: those behind the Service of brokers.webServiceUrl"
    )
    allowed_host_suffixes: tuple[HostSuffix, ...] = Field(
        (), description="discovered hosts must end in one of these; empty: any"
    )
    zone_property: str | None = Field(None, description="lookup property that carries the gateway's zone, e.g. rack")
    state_path: FilePath | None = Field(
        None, description="folder for the last snapshot, to start without the API server"
    )


class Events(Section):
    """The event log."""

    path: FilePath | None = Field(None, description="folder of the log; unset: no event log")
    rotate_bytes: Count = Field(67108864, description="bytes of lines, before compression, that make a file full")
    rotate_seconds: Seconds = Field(300, description="seconds after which a file is finished, full or not")
    retain_bytes: Count = Field(
        536870912, description="bytes of finished files kept, as they are on disk; the oldest go"
    )
    compress: Literal["gzip", "none"] = Field("gzip", description="how files are compressed")


class Metrics(Section):
    """/metrics, /livez and /readyz."""

    address: Address = Field("0.0.0.0:9090", description="host:port; no authentication: keep it inside")


class Console(Section):
    """The status page and its API."""

    address: OptionalAddress = Field(
        "127.0.0.1:9091", description="host:port; for operators, not for the network; null: no console"
    )


class Timeouts(Section):
    """All in seconds."""

    connect: Seconds = Field(5, description="seconds to look a broker's name up, and again to connect, TLS included")
    lookup: Seconds = Field(30, description="seconds until a broker has begun to answer a lookup, and between pieces")
    request: Seconds = Field(
        310,
        description="seconds until a broker has begun to answer anything else, between pieces, or for a client to read",
    )
    upstream_idle: Seconds = Field(
        25, description="seconds that an unused connection to a broker is kept; brokers close theirs at 30"
    )
    client_idle: Seconds = Field(3630, description="seconds that an unused connection of a client is kept")
    head: Seconds = Field(10, description="seconds for a client to send the head of a request it began; beyond: 408")


class Limits(Section):
    """Bounds on what one client can cost."""

    head_bytes: Count = Field(32768, description="bytes of a request's head; beyond: 431")
    headers: Count = Field(100, description="headers of a request; beyond: 431")
    connections: Count = Field(4096, description="client connections of each protocol at a time; beyond: 503")
    in_flight: Count = Field(4096, description="requests of each protocol at a time; beyond: 503")
    buffer_bytes: Count = Field(
        67108864,
        description="bytes of heads, bodies on their way, waiting lookups and unsent answers that all connections "
        "together may hold; beyond: 503",
    )
    replay_total_bytes: Count = Field(67108864, description="bytes kept for replays, of all requests together")
    command_bytes: Count = Field(
        65536, description="bytes of a client's command that has to be read, as a lookup; beyond: the connection ends"
    )


class Log(Section):
    """The sidecar's own log."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="the least that is logged")
    format: Literal["auto", "text", "json"] = Field("auto", description="auto: text on a terminal, JSON elsewhere")


_LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))


class Config(Section):
    """Configuration of pulsar-ingress-proxy."""

    cluster_name: str = Field("pulsar", description="the Pulsar cluster behind this sidecar; in events and build_info")
    bind_addresses: BindAddresses = Field(
        (BindAddress(None, "http", "0.0.0.0", 8080),),  # noqa: S104 - the gateway beside it connects here
        description="sockets, as [listener:]scheme://host:port (PIP-95)",
    )
    tls: ServerTls = Field(ServerTls(), validate_default=True, description="for https and pulsar+ssl sockets")
    brokers: Brokers = Field(Brokers(), validate_default=True, description="the brokers behind this sidecar")
    function_workers: FunctionWorkers = Field(FunctionWorkers(), description="function workers that run apart")
    ingresses: tuple[IngressConfig, ...] = Field((), description="the doors that clients come through")
    internal_listener_name: ListenerName = Field(
        "internal",
        description="the listener by whose addresses the sidecar dials brokers; clients may name it only if allowed",
    )
    lookup_listener_name: OptionalListenerName = Field(
        None,
        description="used where no rule decides, and where a listener has no address for a broker (PIP-338)",
    )
    advertised_listeners: tuple[BrokerListeners, ...] = Field((), description="the address book")
    redirects: Redirects = Field(Redirects(), description="what becomes of brokers' redirects")
    prefer_http_client_listener_over_internal_listener: bool = Field(
        True, description="PIP-338; false: redirects and httpUrl stay as brokers sent them"
    )
    client_listener_name: Literal["honor", "ignore", "reject"] = Field(
        "honor", description="a listener that the client names itself; ignore: dropped, reject: 400"
    )
    unknown_listener: Literal["reject", "forward"] = Field(
        "reject", description="a name that no broker has; reject: 400, as PIP-95 says"
    )
    miss: Literal["forward", "reject"] = Field("forward", description="a lookup that no rule decides; reject: 400")
    leaks: Literal["rewrite", "block", "observe"] = Field(
        "rewrite", description="addresses that are not on the listener; block: 502, observe: change nothing"
    )
    shadow: bool = Field(False, description="decide, count and record, but change nothing")
    trusted_proxies: tuple[TrustedNetwork, ...] = Field(
        _LOOPBACK, description="addresses and networks whose X-Forwarded-Host, -Proto and -For count"
    )
    kubernetes: Kubernetes = Field(Kubernetes(), description="discovery of ingresses and brokers")
    events: Events = Field(Events(), description="the event log")
    metrics: Metrics = Field(Metrics(), validate_default=True, description="where metrics and probes are served")
    console: Console = Field(Console(), description="where the status page is served")
    timeouts: Timeouts = Field(Timeouts(), description="in seconds")
    limits: Limits = Field(Limits(), description="bounds on what one client can cost")
    drain_seconds: Annotated[float, Field(ge=0)] = Field(
        20, description="seconds that running requests get when their socket is closed: at the end, or by a reload"
    )
    log: Log = Field(Log(), description="the sidecar's own log")

    # What keys say against each other. Each key is held against those before it, as far as those are right: a
    # validator of the whole would be silent until every key is, and all faults of a file are to be told at once.

    @field_validator("tls")
    @classmethod
    def _tls_is_enough(cls, tls: ServerTls, info: ValidationInfo) -> ServerTls:
        secure = [address.scheme for address in info.data.get("bind_addresses", ()) if address.scheme in TLS_SCHEMES]
        if secure:
            why = f"bindAddresses has {'an' if secure[0] == 'https' else 'a'} {secure[0]} socket"
        elif tls.client_ca is not None:
            why = "tls.clientCa is of no use without it"
        else:
            _refuse(_half_pair("tls", tls.certificate, tls.key))
            return tls
        _refuse(f"tls.{key}: is missing: {why}" for key in ("certificate", "key") if getattr(tls, key) is None)
        return tls

    @field_validator("brokers")
    @classmethod
    def _brokers_are_enough(cls, brokers: Brokers, info: ValidationInfo) -> Brokers:
        web = any(address.scheme in WEB_SCHEMES for address in info.data.get("bind_addresses", ()))
        binary = any(address.scheme in BINARY_SCHEMES for address in info.data.get("bind_addresses", ()))
        faults = list(_half_pair("brokers.tls", brokers.tls.certificate, brokers.tls.key))
        if web and not brokers.web_service_url:
            faults.append("brokers.webServiceUrl: is missing: say where HTTP goes, e.g. [http://pulsar-broker:8080]")
        if binary and not brokers.broker_service_url:
            where = "say where the binary protocol goes, e.g. [pulsar://pulsar-broker:6650]"
            faults.append(f"brokers.brokerServiceUrl: is missing: {where}")
        _refuse(faults)
        return brokers

    @field_validator("ingresses")
    @classmethod
    def _ingresses_differ(cls, ingresses: tuple[IngressConfig, ...]) -> tuple[IngressConfig, ...]:
        _refuse(_common_names_and_hosts(ingresses))
        return ingresses

    @field_validator("advertised_listeners")
    @classmethod
    def _brokers_are_dialable(
        cls, lines: tuple[BrokerListeners, ...], info: ValidationInfo
    ) -> tuple[BrokerListeners, ...]:
        brokers, internal = info.data.get("brokers"), info.data.get("internal_listener_name")
        if brokers and internal and not (brokers.web_service_url or brokers.broker_service_url):
            _refuse(
                f"advertisedListeners.{place}.listeners: has no '{internal}' listener, "
                "and no brokers URL says how to reach the broker without it"
                for place, line in enumerate(lines)
                if line.listeners and internal not in line.listeners
            )
        return lines

    @field_validator("metrics")
    @classmethod
    def _metrics_have_their_own_socket(cls, metrics: Metrics, info: ValidationInfo) -> Metrics:
        own = parse_authority(metrics.address)
        assert own is not None
        assert own.port is not None
        _refuse(
            f"metrics.address: {own} and {bind} of bindAddresses are one socket: give each its own port"
            for bind in info.data.get("bind_addresses", ())
            if is_one_socket(own.host, own.port, bind.host, bind.port)
        )
        return metrics

    @cached_property
    def web_pool(self) -> tuple[ServiceUrl, ...]:
        return tuple(parse_service_url(url) for url in self.brokers.web_service_url)

    @cached_property
    def binary_pool(self) -> tuple[ServiceUrl, ...]:
        return tuple(parse_service_url(url) for url in self.brokers.broker_service_url)

    @cached_property
    def function_pool(self) -> tuple[ServiceUrl, ...]:
        return tuple(parse_service_url(url) for url in self.function_workers.web_service_url)

    @cached_property
    def named_listeners(self) -> frozenset[str]:
        """Every listener that a key names; with those of the book, the only values of a `listener` label."""
        names = {self.internal_listener_name, self.lookup_listener_name}
        names.update(address.listener for address in self.bind_addresses)
        for ingress in self.ingresses:
            names.update((ingress.listener, *(ingress.allowed_listeners or ())))
        return frozenset(name for name in names if name)


def _refuse(faults: Iterable[str]) -> None:
    if found := tuple(faults):
        raise SyntaxFaults(found)


def _half_pair(section: str, certificate: str | None, key: str | None) -> Iterable[str]:
    if certificate is None and key is not None:
        yield f"{section}.certificate: is missing: {section}.key is of no use without it"
    if key is None and certificate is not None:
        yield f"{section}.key: is missing: {section}.certificate is of no use without it"


def _common_names_and_hosts(ingresses: Iterable[IngressConfig]) -> Iterable[str]:
    names: set[str] = set()
    hosts: dict[str, str] = {}
    for place, ingress in enumerate(ingresses):
        if ingress.name in names:
            yield f"ingresses.{place}.name: '{ingress.name}' is there twice: give each ingress its own name"
        names.add(ingress.name)
        for host in ingress.hosts:
            if hosts.setdefault(host, ingress.name) != ingress.name:
                yield f"ingresses.{place}.hosts: '{host}' is in two ingresses, '{hosts[host]}' and '{ingress.name}'"


def json_schema() -> dict[str, Any]:
    """The JSON schema of the config file."""
    schema = Config.model_json_schema(by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "pulsar-ingress-proxy",
    }

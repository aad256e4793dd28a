"""The config model: keys, types, defaults and units. The JSON schema and the reference are generated from it.

Keys are camelCase. A key that the broker has too has the broker's name.
"""

import ast
import inspect
import ipaddress
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import combinations, pairwise
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainValidator,
    PrivateAttr,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema

from pulsar_ingress_proxy.config.sources import Sources
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
    comma_separated,
    is_bindable,
    is_host,
    is_one_socket,
    parse_advertised_listeners,
    parse_bind_addresses,
    parse_service_url,
)
from pulsar_ingress_proxy.syntax.selectors import parse_selector

Exposable = Literal["lookup", "client", "admin", "topics", "ws", "functions"]
"""Areas of the brokers' HTTP API. `client` is the GET calls that client libraries make."""

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


def _broker_name(value: object) -> str:
    name = _text(value, "what the broker calls itself")
    if parse_authority(VARIABLE.sub("0", name)) is None:
        raise ValueError(f"'{name}' is not a broker's name: write host or host:port, where {{n}} may stand for a word")
    return name


def _spiffe_id(value: object) -> str:
    if not _SPIFFE_ID.fullmatch(text := _text(value, "a spiffe:// URI")):
        raise ValueError(f"'{text}' is not a SPIFFE ID: write spiffe://trust-domain/path, e.g. {_SPIFFE_EXAMPLE}")
    return text


def _gateway_name(value: object) -> str:
    name = _text(value, "a gateway or an ingress class")
    if not _GATEWAY_NAME.fullmatch(name):
        raise ValueError(f"'{name}' is no gateway: write kind/namespace/name, as in {_GATEWAY_EXAMPLE}")
    return name


def _label_selector(value: object) -> str:
    parse_selector(text := _text(value, "a label selector"))
    return text


def _split(value: object) -> object:
    return comma_separated(value) if isinstance(value, str) else value


def _urls_of(*schemes: str) -> BeforeValidator:
    def check(value: object) -> str:
        url = parse_service_url(_text(value, "a URL"))
        if url.scheme not in schemes:
            raise ValueError(f"'{value}' should begin with {' or '.join(scheme + '://' for scheme in schemes)}")
        return str(url)

    return BeforeValidator(check)


ListenerName = Annotated[str, BeforeValidator(_listener_name)]
_EMPTY_IS_UNSET = BeforeValidator(lambda value: None if value == "" else value)
OptionalListenerName = Annotated[ListenerName | None, _EMPTY_IS_UNSET]
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
OptionalAddress = Annotated[Address | None, _EMPTY_IS_UNSET]
WebUrls = Annotated[tuple[Annotated[str, _urls_of("http", "https")], ...], BeforeValidator(_split)]
BinaryUrls = Annotated[tuple[Annotated[str, _urls_of("pulsar", "pulsar+ssl")], ...], BeforeValidator(_split)]
BrokerName = Annotated[str, BeforeValidator(_broker_name)]
SpiffeId = Annotated[str, BeforeValidator(_spiffe_id)]
GatewayName = Annotated[str, BeforeValidator(_gateway_name)]
HostSuffix = Annotated[str, BeforeValidator(_host_suffix)]
LabelSelector = Annotated[Annotated[str, BeforeValidator(_label_selector)] | None, _EMPTY_IS_UNSET]
FilePath = Annotated[str, AfterValidator(_file_path)]
Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]


class Section(BaseModel):
    """A record of keys. The text below a key describes it in the JSON schema and in the reference."""

    # Deferred, so that pydantic builds the whole config once, and not every section on its own as well.
    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, populate_by_name=False, defer_build=True
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /) -> dict[str, Any]:
        # Not use_attribute_docstrings: it would read the source at each start, which takes 50 ms.
        schema = handler.resolve_ref_schema(handler(core_schema))
        (definition,) = ast.parse(inspect.getsource(cls)).body
        assert isinstance(definition, ast.ClassDef)
        for key, text in pairwise(definition.body):
            match key, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(description))):
                    schema["properties"][to_camel(name)]["description"] = " ".join(description.split())
        return schema


class ServerTls(Section):
    """Certificates of the https and pulsar+ssl sockets."""

    certificate: FilePath | None = None
    """PEM file with the certificate chain. Reloaded when it changes."""
    key: FilePath | None = None
    """PEM file with the private key."""
    client_ca: FilePath | None = None
    """PEM file with a CA. If set, clients must present a certificate issued by it."""


class BrokerTls(Section):
    """TLS for connections to brokers."""

    ca: FilePath | None = None
    """PEM file with the CAs to trust. Unset: the system's CAs."""
    certificate: FilePath | None = None
    """PEM file with the sidecar's client certificate, presented to all brokers."""
    key: FilePath | None = None
    """PEM file with the private key of the client certificate."""
    peer_identity: SpiffeId | None = None
    """SPIFFE ID (a spiffe:// URI) that brokers' certificates must have. It is verified instead of the host name."""


class Brokers(Section):
    """The brokers behind this sidecar."""

    web_service_url: WebUrls = ()
    """One or more URLs for HTTP requests. Required if there are http or https sockets."""
    broker_service_url: BinaryUrls = ()
    """One or more URLs for the binary protocol. Required if there are pulsar or pulsar+ssl sockets."""
    tls: BrokerTls = BrokerTls()
    """TLS settings for connections to brokers."""
    trust_original_principal: bool = False
    """If false, X-Original-Principal and the original_* fields of the binary protocol are removed from clients'
    requests."""
    discover: Literal["none", "admin"] = "none"
    """admin: ask the brokers' admin API which listeners they have."""
    admin_token_file: FilePath | None = None
    """File with the token for the admin API, read again for each use. Unset: no token is sent."""


class FunctionWorkers(Section):
    """Function workers that run separately from brokers."""

    web_service_url: WebUrls = ()
    """URLs for the function paths. Empty: they go to the brokers."""


class IngressConfig(Section):
    """An ingress: where clients come in."""

    name: str = Field(min_length=1)
    """Name of the ingress in metrics and events."""
    hosts: tuple[IngressHost, ...] = ()
    """Hosts of the ingress. A leading *. matches one or more labels."""
    listener: ListenerName
    """Listener for the requests that come through this ingress."""
    allowed_listeners: tuple[ListenerName, ...] | None = None
    """Listeners that clients of this ingress may name. Unset: all known listeners except the internal one."""
    expose: tuple[Exposable, ...] | None = None
    """Parts of the brokers' API that may be called through this ingress. client is the GET calls that client libraries
    make. Unset: everything."""
    lookup_properties: dict[str, str] = {}
    """Properties to add to binary lookups (PIP-368)."""
    override_lookup_properties: bool = False
    """If true, these properties replace the client's properties of the same name."""
    through_sidecar: bool = False
    """Binary protocol: clients reach brokers through this socket. No address in an answer or redirect, known or
    unknown, leads around the sidecar."""
    shadow: bool | None = None
    """Shadow mode for this ingress only. Unset: as `shadow` says for all."""


class BrokerListeners(Section):
    """An entry of the address book."""

    broker: BrokerName
    """The broker's own name, or a template of it."""
    listeners: ListenerUrls
    """The broker's addresses, in the syntax of its advertisedListeners (PIP-61). Those with `kafka://` and
    `kafka+ssl://` are only for `doctor`."""

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
    """What to do with brokers' redirects."""

    lookup: Literal["auto", "rewrite", "follow", "pass"] = "auto"
    """What to do with redirects of lookups. `auto` follows those of requests with `Authorization`, which some clients
    do not send to another host, and rewrites all others."""
    admin: Literal["auto", "rewrite", "follow", "pass"] = "auto"
    """What to do with all other redirects."""
    unmapped: Literal["follow", "refuse", "pass"] = "follow"
    """What to do with redirects that the address book cannot map. The sidecar never connects to an unknown host."""
    max_hops: Count = 5
    """Maximum number of redirects to follow for one request. Exceeding it: 502."""
    replay_bytes: Annotated[int, Field(ge=0)] = 5242880
    """Maximum size in bytes of a request body that is kept so that it can be sent again. A larger body is sent only
    once."""
    peers: tuple[IngressHost, ...] = ()
    """Hosts of peer clusters. Redirects to them pass unchanged."""


class Kubernetes(Section):
    """Discovery of ingresses and brokers in Kubernetes."""

    enabled: bool = False
    """Enables discovery."""
    namespaces: tuple[str, ...] = ()
    """Namespaces to watch. Empty: the sidecar's own."""
    gateways: tuple[GatewayName, ...] = ()
    """Gateways that this sidecar belongs to, as kind/namespace/name or as an ingress class. Empty: every annotated
    object counts."""
    broker_selector: LabelSelector = None
    """Label selector of the brokers' pods. Unset: the pods behind the Service in brokers.webServiceUrl."""
    allowed_host_suffixes: tuple[HostSuffix, ...] = ()
    """Domains that discovered hosts must belong to. Empty: any host is allowed."""
    zone_property: str | None = None
    """Name of the lookup property that carries the gateway's zone, for example rack."""
    state_path: FilePath | None = None
    """Directory for the last snapshot, so that the sidecar can start without the API server."""


class Events(Section):
    """The event log."""

    path: FilePath | None = None
    """Directory of the event log. Unset: no event log."""
    rotate_bytes: Count = 67108864
    """Uncompressed size in bytes at which a file is finished."""
    rotate_seconds: Seconds = 300
    """Age in seconds at which a file is finished, even if it is not full."""
    retain_bytes: Count = 536870912
    """Maximum size in bytes of finished files on disk. The oldest files are deleted."""
    flush_millis: Count = 200
    """Milliseconds between writes. If the sidecar is killed, the events since the last write are lost."""
    compress: Literal["gzip", "none"] = "gzip"
    """Compression of the files."""


class Metrics(Section):
    """The endpoints /metrics, /livez and /readyz."""

    address: Address = "0.0.0.0:9090"
    """Address to bind, as host:port. There is no authentication, so do not expose it outside the cluster."""


class Console(Section):
    """The status page and its API."""

    address: OptionalAddress = "127.0.0.1:9091"
    """Address to bind, as host:port. The console is for operators; do not expose it to the network. null: no
    console."""


class Timeouts(Section):
    """Timeouts, in seconds."""

    connect: Seconds = 5
    """Seconds to resolve a broker's name, and again to connect, including TLS."""
    lookup: Seconds = 30
    """Seconds to wait for the first byte of a broker's answer to a lookup, and between parts of it."""
    request: Seconds = 310
    """Seconds to wait for the first byte of a broker's answer to any other request, between parts of it, and for a
    client to read."""
    upstream_idle: Seconds = 25
    """Seconds to keep an idle connection to a broker. Brokers close theirs after 30."""
    client_idle: Seconds = 3630
    """Seconds to keep an idle client connection."""
    head: Seconds = 10
    """Seconds for a client to send the head of a request, from its first byte. Exceeding it: 408."""


class Limits(Section):
    """Limits on the resources that clients can use."""

    head_bytes: Count = 32768
    """Maximum size in bytes of a request's head. Exceeding it: 431."""
    headers: Count = 100
    """Maximum number of headers of a request. Exceeding it: 431."""
    connections: Count = 4096
    """Maximum number of client connections, for each protocol. Exceeding it: 503."""
    in_flight: Count = 4096
    """Maximum number of requests in flight, for each protocol. Exceeding it: 503."""
    wait_millis: Count = 100
    """Milliseconds that requests may wait until the sidecar reads them, because it is busy. If all wait longer for a
    second: 503 for most of those that do, until others wait less. Needs Linux."""
    buffer_bytes: Count = 67108864
    """Maximum number of bytes that all connections together may hold for heads, bodies in transit, waiting lookups and
    unsent answers. Exceeding it: 503."""
    replay_total_bytes: Count = 67108864
    """Maximum number of bytes that all requests together may keep for sending bodies again."""
    command_bytes: Count = 65536
    """Maximum size in bytes of a client's binary command that the sidecar has to read, such as a lookup. Exceeding it
    closes the connection."""


class Log(Section):
    """The sidecar's own log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged."""
    format: Literal["auto", "text", "json"] = "auto"
    """auto: text on a terminal, JSON otherwise."""


_LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))


AT_START = ("cluster_name", "events", "metrics", "console")
"""Keys whose change takes effect at the next start."""


class Config(Section):
    """Configuration of pulsar-ingress-proxy."""

    cluster_name: str = "pulsar"
    """Name of the Pulsar cluster behind this sidecar, used in events and in build_info."""
    bind_addresses: BindAddresses = (BindAddress(None, "http", "0.0.0.0", 8080),)  # noqa: S104 - the gateway beside it connects here
    """Sockets to bind, as [listener:]scheme://host:port (PIP-95)."""
    tls: ServerTls = Field(ServerTls(), validate_default=True)
    """TLS settings of the https and pulsar+ssl sockets."""
    brokers: Brokers = Field(Brokers(), validate_default=True)
    """Brokers behind this sidecar."""
    function_workers: FunctionWorkers = FunctionWorkers()
    """Function workers, if they run separately from brokers."""
    ingresses: tuple[IngressConfig, ...] = ()
    """The ingresses that clients come through."""
    internal_listener_name: ListenerName = "internal"
    """Listener whose addresses the sidecar uses to connect to brokers. Clients may name it only if an ingress allows
    it."""
    lookup_listener_name: OptionalListenerName = None
    """Listener to use if no other rule selects one, and if a broker has no address on the selected listener
    (PIP-338)."""
    advertised_listeners: tuple[BrokerListeners, ...] = ()
    """The address book: the addresses of each broker on each listener."""
    redirects: Redirects = Redirects()
    """Handling of brokers' redirects."""
    prefer_http_client_listener_over_internal_listener: bool = True
    """If false, redirects and httpUrl stay as brokers sent them (PIP-338)."""
    client_listener_name: Literal["honor", "ignore", "reject"] = "honor"
    """What to do with a listener that the client names. ignore: drop the name. reject: answer 400."""
    unknown_listener: Literal["reject", "forward"] = "reject"
    """What to do with a lookup for a listener that no broker has. reject: answer 400, as in PIP-95."""
    miss: Literal["forward", "reject"] = "forward"
    """What to do with a lookup for which no rule selects a listener. reject: answer 400."""
    leaks: Literal["rewrite", "block", "observe"] = "rewrite"
    """What to do with addresses in answers that are not on the listener. block: answer 502. observe: change nothing."""
    shadow: bool = False
    """Decide, count and record, but change nothing. An ingress can differ."""
    trusted_proxies: tuple[TrustedNetwork, ...] = _LOOPBACK
    """Addresses and networks whose X-Forwarded-Host, X-Forwarded-Proto and X-Forwarded-For headers are trusted."""
    kubernetes: Kubernetes = Kubernetes()
    """Kubernetes discovery."""
    events: Events = Events()
    """Settings of the event log."""
    metrics: Metrics = Field(Metrics(), validate_default=True)
    """The endpoints for metrics and probes."""
    console: Console = Console()
    """Address of the status page and its API."""
    timeouts: Timeouts = Timeouts()
    """Timeouts. All are in seconds."""
    limits: Limits = Limits()
    """Resource limits."""
    drain_seconds: Annotated[float, Field(ge=0)] = 20
    """Seconds that running requests have to finish when their socket is closed, at shutdown or by a reload."""
    log: Log = Log()
    """Settings of the sidecar's own log."""

    _sources: Sources = PrivateAttr(default=Sources())

    # Checks across keys. Each key is checked against the valid keys before it: a validator of the whole model would run
    # only if every key is valid, and all errors of a file should be reported at once.

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

    @property
    def sources(self) -> Sources:
        """Where its keys are set."""
        return self._sources

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
        """Every listener in the config. With those of the address book, the only values of a `listener` label."""
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
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "pulsar-ingress-proxy"}

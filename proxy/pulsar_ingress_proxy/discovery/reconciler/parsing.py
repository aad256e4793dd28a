"""Parses objects of the API server or of YAML files into the records of `objects`. Pure.

Invalid parts are ignored: the API server validates what it stores, and the rest of a manifest is still useful.
"""

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pulsar_ingress_proxy.discovery.reconciler.annotations import Annotations, read_annotations
from pulsar_ingress_proxy.discovery.reconciler.kinds import GATEWAY_API, Kind
from pulsar_ingress_proxy.discovery.reconciler.objects import (
    Backend,
    Carries,
    Endpoint,
    Gateway,
    Key,
    ListenerSet,
    Object,
    Parent,
    Pod,
    Route,
    Rule,
    Section,
    Service,
    ServicePort,
    Slice,
)
from pulsar_ingress_proxy.syntax.hosts import ANY, normal

Raw = Mapping[str, Any]

_HTTP: frozenset[Carries] = frozenset(["http"])
_TLS: frozenset[Carries] = frozenset(["tls"])
_TCP: frozenset[Carries] = frozenset(["tcp"])
_NOTHING: frozenset[Carries] = frozenset()
_CARRIED: Mapping[str, Carries] = {"HTTPRoute": "http", "TLSRoute": "tls", "TCPRoute": "tcp"}


def key_of(kind: Kind, obj: Raw) -> Key | None:
    """An object's identity; None if it lacks a namespace or name."""
    metadata = record_at(obj, "metadata")
    namespace, name = metadata.get("namespace"), metadata.get("name")
    return Key(kind.name, namespace, name) if isinstance(namespace, str) and isinstance(name, str) else None


def read(key: Key, obj: Raw) -> Object | None:
    """Parse an object; None if it is not needed, such as a pod that has terminated."""
    annotations = read_annotations(_texts(record_at(obj, "metadata", "annotations")))
    return _READERS[key.kind](key, annotations, record_at(obj, "spec"), obj)


def _ingress(key: Key, annotations: Annotations, spec: Raw, _: Raw) -> Route:
    carries: Carries = "tls" if annotations.passes_tls else "http"
    tls_hosts = tuple(host for one in _records(spec.get("tls")) for host in _hosts(one.get("hosts")) or (ANY,))
    default = {"backend": spec.get("defaultBackend")}
    rules = []
    for one in _records(spec.get("rules")) or [{}]:
        host = normal(str(one.get("host") or ANY))
        for path in _records(record_at(one, "http").get("paths")) or [default]:
            whole = path.get("path") in (None, "", "/") and path.get("pathType") != "Exact"
            if host is not None and path.get("backend") is not None:
                rules.append(Rule(carries, (_ingress_backend(key, path),), (host,), whole))
    hosts = tuple(dict.fromkeys(host for rule in rules for host in rule.hosts))
    if ANY in hosts and tls_hosts and ANY not in tls_hosts:
        hosts = tuple(dict.fromkeys((*(host for host in hosts if host != ANY), *tls_hosts)))
    ingress_class = spec.get("ingressClassName") or annotations.ingress_class
    return Route(key, annotations, hosts, tuple(rules), ingress_class=ingress_class, tls_hosts=tls_hosts)


def _ingress_backend(key: Key, path: Raw) -> Backend:
    if not isinstance(name := record_at(path, "backend", "service").get("name"), str):
        return Backend(None)
    port = record_at(path, "backend", "service", "port")
    return Backend(Key("Service", key.namespace, name), port.get("number") or port.get("name"))


def _gateway(key: Key, annotations: Annotations, spec: Raw, obj: Raw) -> Gateway:
    addresses = tuple(_addresses(one.get("value") for one in _records(record_at(obj, "status").get("addresses"))))
    allowed = str(record_at(spec, "allowedListeners", "namespaces").get("from", "None"))
    return Gateway(key, annotations, tuple(_gateway_sections(key, spec)), None, addresses, allowed)


def _listener_set(key: Key, annotations: Annotations, spec: Raw, obj: Raw) -> ListenerSet | None:
    parent, status = record_at(spec, "parentRef"), record_at(obj, "status")
    if (gateway := _parent_key(key, parent)) is None or gateway.kind != "Gateway":
        return None
    # A listener in conflict with one of the Gateway, or of an older ListenerSet, is not served.
    refused = {
        str(one.get("name"))
        for one in _records(status.get("listeners"))
        if _condition(one, "Accepted") is False or _condition(one, "Conflicted") is True
    }
    sections = tuple(
        replace(section, takes=_NOTHING) if section.name in refused else section
        for section in _gateway_sections(key, spec)
    )
    return ListenerSet(key, annotations, sections, gateway, _condition(status, "Accepted"))


def _gateway_sections(key: Key, spec: Raw) -> Iterator[Section]:
    for one in _records(spec.get("listeners")):
        # The default of allowedRoutes is Same. Namespace labels are not watched, so for Selector the route's status
        # decides.
        allowed = record_at(one, "allowedRoutes", "namespaces").get("from", "Same")
        namespace = {"Same": key.namespace, "All": ANY, "Selector": ANY}.get(allowed)
        host = normal(str(one.get("hostname") or ANY))
        passes = record_at(one, "tls").get("mode") == "Passthrough"
        takes, tls = _gateway_protocol(str(one.get("protocol")).upper(), passes)
        if namespace is not None and host is not None and (port := _number(one.get("port"))):
            yield Section(str(one.get("name")), port, takes, tls, ((namespace, host),))


def _gateway_protocol(protocol: str, passes: bool) -> tuple[frozenset[Carries], bool | None]:
    # A TCPRoute on a listener that terminates TLS is not in the Gateway API's table of route types, but Istio and Envoy
    # Gateway serve it. None does where TLS is passed on.
    protocols: Mapping[str, tuple[frozenset[Carries], bool | None]] = {
        "HTTP": (_HTTP, False),
        "HTTPS": (_TLS if passes else _HTTP, True),
        "TLS": (_TLS if passes else _TLS | _TCP, True),
        "TCP": (_TCP, None),
    }
    return protocols.get(protocol, (_NOTHING, None))


def _istio_gateway(key: Key, annotations: Annotations, spec: Raw, _: Raw) -> Gateway:
    sections = []
    for one in _records(spec.get("servers")):
        port = record_at(one, "port")
        tls = record_at(one, "tls") if "tls" in one else None
        takes, speaks_tls = _istio_protocol(str(port.get("protocol")).upper(), tls)
        hosts = []
        for text in _strings(one.get("hosts")):
            namespace, slash, name = text.rpartition("/")
            host = normal(name)
            if host is not None:
                hosts.append((key.namespace if namespace == "." else namespace if slash else ANY, host))
        if number := _number(port.get("number")):
            name = str(one.get("name") or port.get("name") or "")
            sections.append(Section(name, number, takes, speaks_tls, tuple(hosts)))
    return Gateway(key, annotations, tuple(sections), _texts(spec.get("selector")))


def _istio_protocol(protocol: str, tls: Raw | None) -> tuple[frozenset[Carries], bool | None]:
    """The rules of a VirtualService that apply to a server (networking.istio.io/v1 TLSRoute and TCPRoute)."""
    # PASSTHROUGH is the first mode, and so the default.
    passes = tls is not None and tls.get("mode", "PASSTHROUGH") in ("PASSTHROUGH", "AUTO_PASSTHROUGH")
    match protocol:
        case "HTTP" | "HTTP2" | "GRPC" | "GRPC-WEB":
            return (_NOTHING if tls is not None and tls.get("httpsRedirect") else _HTTP), False
        case "HTTPS":
            return (_NOTHING if tls is None else _TLS if passes else _HTTP), True
        case "TLS":
            return (_NOTHING if tls is None else _TLS if passes else _TCP), True
        case "TCP":
            return (_TLS, True) if passes else (_TCP, None if tls is None else True)
        case _:
            return _NOTHING, None


def _gateway_route(key: Key, annotations: Annotations, spec: Raw, obj: Raw) -> Route:
    carries = _CARRIED[key.kind]
    parents = []
    for ref in _records(spec.get("parentRefs")):
        if (gateway := _parent_key(key, ref)) is not None:
            section = ref.get("sectionName") or None
            parents.append(Parent(gateway, section, _number(ref.get("port")), _is_refused(key, obj, ref)))
    rules = tuple(
        Rule(carries, tuple(_gateway_backends(key, one)), whole=carries != "http" or _takes_all_paths(one))
        for one in _records(spec.get("rules")) or [{}]
    )
    hosts = _hosts(spec.get("hostnames"))
    # If all hosts are invalid, the route must not match every host.
    has_place = bool(hosts) or not spec.get("hostnames")
    return Route(key, annotations, hosts, rules, tuple(parents) if has_place else ())


def _gateway_backends(key: Key, rule: Raw) -> Iterator[Backend]:
    if any(filter_.get("type") == "RequestRedirect" for filter_ in _records(rule.get("filters"))):
        return
    for ref in _records(rule.get("backendRefs")):
        if ref.get("weight") == 0:
            continue
        if ref.get("group", "") == "" and ref.get("kind", "Service") == "Service":
            service = Key("Service", str(ref.get("namespace") or key.namespace), str(ref.get("name")))
            yield Backend(service, _number(ref.get("port")))
        else:
            yield Backend(None)


def _takes_all_paths(rule: Raw) -> bool:
    matches = _records(rule.get("matches"))
    return not matches or any(
        match.keys() <= {"path"} and record_at(match, "path").get("value", "/") == "/" for match in matches
    )


def _parent_key(key: Key, ref: Raw) -> Key | None:
    """The Gateway or ListenerSet that a reference means; None if it means another kind."""
    kind = ref.get("kind", "Gateway")
    if ref.get("group", GATEWAY_API) != GATEWAY_API or kind not in ("Gateway", "ListenerSet"):
        return None
    return Key(kind, str(ref.get("namespace") or key.namespace), str(ref.get("name")))


def _is_refused(key: Key, obj: Raw, ref: Raw) -> bool:
    def meant(ref: Raw) -> tuple[object, ...]:
        return _parent_key(key, ref), ref.get("sectionName"), ref.get("port")

    return any(
        _condition(parent, "Accepted") is False
        for parent in _records(record_at(obj, "status").get("parents"))
        if meant(record_at(parent, "parentRef")) == meant(ref)
    )


def _condition(status: Raw, name: str) -> bool | None:
    """What a status says of a condition; None if it is unknown."""
    said = (one.get("status") for one in _records(status.get("conditions")) if one.get("type") == name)
    return {"True": True, "False": False}.get(str(next(said, None)))


def _virtual_service(key: Key, annotations: Annotations, spec: Raw, _: Raw) -> Route:
    parents = tuple(Parent(gateway) for gateway in _istio_gateways(key, spec.get("gateways")))
    exported = tuple(key.namespace if name == "." else name for name in _strings(spec.get("exportTo")))
    carried: tuple[Carries, ...] = ("http", "tls", "tcp")
    rules = tuple(
        rule for carries in carried for one in _records(spec.get(carries)) for rule in _istio_rules(key, carries, one)
    )
    # A single label is the name of a Service in the mesh.
    hosts = tuple(host for host in _hosts(spec.get("hosts")) if "." in host or host == ANY)
    if exported and ANY not in exported:
        parents = tuple(parent for parent in parents if parent.gateway.namespace in exported)
    return Route(key, annotations, hosts, rules, parents if hosts else ())


def _istio_gateways(key: Key, names: object) -> Iterator[Key]:
    for text in _strings(names):
        namespace, _, name = text.rpartition("/")
        if text != "mesh":
            yield Key("IstioGateway", namespace or key.namespace, name)


def _istio_rules(key: Key, carries: Carries, rule: Raw) -> Iterator[Rule]:
    """One rule for each alternative of `match`."""
    routes = _records(rule.get("route"))
    backends = tuple(
        _destination(key, record_at(one, "destination")) for one in routes if len(routes) == 1 or one.get("weight") != 0
    )
    for match in _records(rule.get("match")) or [{}]:
        authority = record_at(match, "authority")
        if authority and "exact" not in authority:
            continue  # prefix and regex do not tell the hosts
        named = [authority["exact"]] if authority else match.get("sniHosts")
        hosts = _hosts(named)
        if named and not hosts:
            continue
        narrowed = match.keys() - {"authority", "gateways", "name", "port", "sniHosts"}
        gateways = frozenset(_istio_gateways(key, match["gateways"])) if "gateways" in match else None
        whole = not narrowed or (narrowed == {"uri"} and record_at(match, "uri").get("prefix") == "/")
        yield Rule(carries, backends, hosts, whole, _number(match.get("port")), gateways)


def _destination(key: Key, destination: Raw) -> Backend:
    host = str(destination.get("host", ""))
    labels = host.split(".")
    if len(labels) == 1:
        service = Key("Service", key.namespace, host)
    elif len(labels) > 2 and labels[2] == "svc":
        service = Key("Service", labels[1], labels[0])
    else:
        return Backend(None)
    return Backend(service, _number(record_at(destination, "port").get("number")))


def _service(key: Key, annotations: Annotations, spec: Raw, obj: Raw) -> Service:
    ports = []
    for one in _records(spec.get("ports")):
        number, target = _number(one.get("port")), one.get("targetPort")
        if number and one.get("protocol", "TCP") == "TCP":
            name, protocol = str(one.get("name") or ""), str(one.get("appProtocol") or "")
            target = target if isinstance(target, int | str) and target else number
            ports.append(ServicePort(number, target, name, _number(one.get("nodePort")), protocol))
    balancer = _records(record_at(obj, "status", "loadBalancer").get("ingress"))
    outside = [one.get("hostname") or one.get("ip") for one in balancer]
    addresses = tuple(_addresses(outside or _strings(spec.get("externalIPs"))))
    kind, selector = str(spec.get("type") or "ClusterIP"), _texts(spec.get("selector"))
    return Service(key, annotations, kind, selector, tuple(ports), addresses)


def _pod(key: Key, _: Annotations, spec: Raw, obj: Raw) -> Pod | None:
    status = record_at(obj, "status")
    if status.get("phase") in ("Succeeded", "Failed"):
        return None
    ips = [one.get("ip") for one in _records(status.get("podIPs"))] or [status.get("podIP")]
    ports = [
        (str(port.get("name") or ""), number)
        for container in _records(spec.get("containers"))
        for port in _records(container.get("ports"))
        if (number := _number(port.get("containerPort")))
    ]
    labels, ending = _texts(record_at(obj, "metadata", "labels")), "deletionTimestamp" in record_at(obj, "metadata")
    hostname, subdomain = str(spec.get("hostname") or key.name), str(spec.get("subdomain") or "")
    return Pod(key, labels, hostname, subdomain, tuple(_addresses(ips)), tuple(ports), ending)


def _slice(key: Key, _annotations: Annotations, _spec: Raw, obj: Raw) -> Slice | None:
    service = _texts(record_at(obj, "metadata", "labels")).get("kubernetes.io/service-name")
    if service is None or obj.get("addressType") == "FQDN":
        return None
    endpoints = []
    for one in _records(obj.get("endpoints")):
        target = record_at(one, "targetRef")
        ips = tuple(_addresses(_strings(one.get("addresses"))))
        is_pod = target.get("kind") == "Pod"
        name = str(target.get("name")) if is_pod else next(iter(ips), None)
        if name is not None:
            ending = record_at(one, "conditions").get("terminating") is True
            endpoints.append(Endpoint(name, is_pod, ips, str(one.get("hostname") or ""), ending))
    ports = [
        (str(one.get("name") or ""), number)
        for one in _records(obj.get("ports"))
        if (number := _number(one.get("port"))) and one.get("protocol", "TCP") == "TCP"
    ]
    return Slice(key, Key("Service", key.namespace, service), tuple(endpoints), tuple(ports))


_READERS: Mapping[str, Callable[[Key, Annotations, Raw, Raw], Object | None]] = {
    "Ingress": _ingress,
    "Gateway": _gateway,
    "ListenerSet": _listener_set,
    "HTTPRoute": _gateway_route,
    "TLSRoute": _gateway_route,
    "TCPRoute": _gateway_route,
    "IstioGateway": _istio_gateway,
    "VirtualService": _virtual_service,
    "Service": _service,
    "Pod": _pod,
    "EndpointSlice": _slice,
}


def record_at(value: object, *path: str) -> Raw:
    """The record at a path of keys; an empty one if anything on the way is not a record."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _records(value: object) -> list[Raw]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _strings(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _texts(value: object) -> dict[str, str]:
    return {key: text for key, text in record_at(value).items() if isinstance(key, str) and isinstance(text, str)}


def _hosts(value: object) -> tuple[str, ...]:
    return tuple(dict.fromkeys(host for text in _strings(value) if (host := normal(text)) is not None))


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and 0 < value < 65536 else None


def _addresses(values: Iterable[object]) -> Iterator[str]:
    """Hosts and addresses in URL form: IPv6 in brackets."""
    for value in values:
        if isinstance(value, str) and value:
            try:
                address = ipaddress.ip_address(value)
            except ValueError:
                if (host := normal(value)) is not None:
                    yield host
            else:
                yield f"[{address}]" if address.version == 6 else str(address)

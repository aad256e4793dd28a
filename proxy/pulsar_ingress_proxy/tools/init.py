"""`init`: a commented config, or values of the Helm chart, filled in from a few options. Prints; writes nothing."""

import argparse
import re
from dataclasses import dataclass

from pulsar_ingress_proxy import __version__

SUMMARY = "print a config to start from, or values for the Helm chart"
DETAILS = "What it prints passes `check`, or renders, as it is."

_SERVICE = "http://pulsar-broker.pulsar.svc.cluster.local:8080"
_URL = re.compile(r"(https?)://([a-z0-9]([-a-z0-9.]*[a-z0-9])?)(:[0-9]{1,5})?/?")
_HOST = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")
_LISTENER = re.compile(r"[A-Za-z0-9_-]+")
_TEMPLATE = re.compile(r"[a-z0-9-]*\{n\}[a-z0-9-]*(\.[a-z0-9-]+)+")


@dataclass(frozen=True, slots=True)
class _Gateway:
    about: str
    namespace: str  # by default, of its pods; so of the release, too
    comment: str = ""


_ISTIO_CERTIFICATES = (
    "  # istioCertificates: true  # brokers in the mesh under STRICT mTLS: webServiceUrl is https://\n"
)
GATEWAYS = {
    "istio": _Gateway("the ingress gateway that Istio's gateway chart installed", "istio-ingress", _ISTIO_CERTIFICATES),
    "gateway-api": _Gateway("a Gateway of the Gateway API that Istio runs", "istio-ingress", _ISTIO_CERTIFICATES),
    "envoy-gateway": _Gateway("a Gateway of the Gateway API that Envoy Gateway runs", "envoy-gateway-system"),
    "traefik": _Gateway("Traefik", "traefik"),
}


class BadOptions(ValueError):
    """Options that do not say what is needed."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--brokers",
        action="append",
        default=[],
        metavar="URL",
        help=f"the brokers' web service, e.g. {_SERVICE}; with --helm also their number, "
        "or the name of their pods, e.g. pulsar-broker-{n}.pulsar-broker.pulsar.svc.cluster.local",
    )
    parser.add_argument("--host", default="pulsar.example.com", help="the host in clients' service URL")
    parser.add_argument(
        "--listener", default="external", metavar="NAME", help="the brokers' listener for these clients"
    )
    parser.add_argument("--helm", action="store_true", help="values for the Helm chart")
    parser.add_argument("--gateway", metavar="TYPE", help=f"with --helm: {', '.join(GATEWAYS)}")
    parser.add_argument("--image", metavar="NAME", help="with --helm: an image that the cluster can pull")


def text(options: argparse.Namespace) -> str:
    """What the options ask for; raises BadOptions."""
    _check(options)
    return _values(options) if options.helm else _config(options)


@dataclass(frozen=True, slots=True)
class _Brokers:
    url: str
    template: str  # of the names that they call themselves
    count: int

    @property
    def is_derivable(self) -> bool:
        """Whether the chart gets the template from the URL."""
        return self.template == _template_of(self.url)


def _brokers(options: argparse.Namespace) -> _Brokers:
    url = template = ""
    count = 0
    for given in options.brokers:
        if given.isdigit():
            count = int(given)
        elif "://" in given and _URL.fullmatch(given):
            url = given.rstrip("/")
        elif "{" in given and _TEMPLATE.fullmatch(given):
            template = given
        else:
            raise BadOptions(
                f"--brokers {given}: is neither a URL, e.g. {_SERVICE}, nor a number, nor a name with {{n}}, "
                f"e.g. {_template_of(_SERVICE)}"
            )
    if count and not options.helm:
        raise BadOptions(f"--brokers {count}: a number is for --helm; give the URL of the brokers' web service")
    if not 0 <= count <= 60:
        raise BadOptions(f"--brokers {count}: the chart has routes for up to 60 brokers")
    if template and not url:
        url = f"http://{template.partition('.')[2]}:8080"
    url = url or _SERVICE
    return _Brokers(url, template or _template_of(url), count or 3)


def _template_of(url: str) -> str:
    """The names of a StatefulSet's pods behind a headless Service of the same name."""
    match = _URL.fullmatch(url)
    assert match is not None
    host = match[2]
    if re.fullmatch(r"[a-z0-9-]+\.[a-z0-9-]+(\.svc)?", host):
        host = f"{host.removesuffix('.svc')}.svc.cluster.local"
    return f"{host.partition('.')[0]}-{{n}}.{host}"


def _check(options: argparse.Namespace) -> None:
    if not _HOST.fullmatch(options.host):
        raise BadOptions(f"--host {options.host}: is not a host name, e.g. pulsar.example.com")
    if not _LISTENER.fullmatch(options.listener):
        raise BadOptions(f"--listener {options.listener}: is not a listener's name, e.g. external")
    known = ", ".join(GATEWAYS)
    if options.helm and options.gateway is None:
        raise BadOptions(f"--helm: needs --gateway, which is one of {known}")
    if options.gateway is not None and options.gateway not in GATEWAYS:
        raise BadOptions(f"--gateway {options.gateway}: is not known; it is one of {known}")
    for name, value in (("--gateway", options.gateway), ("--image", options.image)):
        if value is not None and not options.helm:
            raise BadOptions(f"{name}: is for --helm")


def _config(options: argparse.Namespace) -> str:
    brokers, host, listener = _brokers(options), options.host, options.listener
    scheme, _, rest = brokers.url.partition("://")
    port = rest.partition(":")[2] or {"http": "80", "https": "443"}[scheme]
    return _aligned(f"""\
# A config of pulsar-ingress-proxy {__version__}. `pulsar-ingress-proxy check --config FILE` says what it means.
clusterName: pulsar  # in events and metrics
bindAddresses:
  - http://0.0.0.0:8080  # for the gateway; in its pod: 127.0.0.1, and a port that it does not use
  # - {listener}:pulsar://0.0.0.0:6650  # the binary protocol, behind a gateway that terminates TLS
brokers:
  webServiceUrl: [{brokers.url}]
  # brokerServiceUrl: [pulsar://{rest.partition(":")[0]}:6650]

ingresses:  # where clients come in, and the listener that they get
  - name: public
    hosts: [{host}, "*.{host}"]
    listener: {listener}  # brokers have it in their advertisedListeners
    allowedListeners: [{listener}]  # what clients may name themselves
    expose: [lookup, client]  # what clients need to produce and consume; all else is 403

# The address book: what brokers call themselves, and where they are on each listener. {{n}} is any part of a name.
advertisedListeners:
  - broker: {brokers.template}
    listeners: >-
      internal:{scheme}://{brokers.template}:{port},
      {listener}:https://broker-{{n}}.{host},
      {listener}:pulsar+ssl://broker-{{n}}.{host}:6651

# shadow: true  # first: decide, count and record, but change nothing
# events: {{path: /var/lib/pulsar-ingress-proxy/events}}  # one record for each request
metrics: {{address: 0.0.0.0:9090}}  # /metrics, /livez and /readyz
console: {{address: 127.0.0.1:9091}}  # the status page, for operators
""")


def _values(options: argparse.Namespace) -> str:
    gateway, brokers, host, listener = GATEWAYS[options.gateway], _brokers(options), options.host, options.listener
    if not re.search(r"\.svc\b", brokers.template):
        raise BadOptions(
            f"--brokers {brokers.url}: is not a Service with its namespace, by which the chart's routes find the "
            f"brokers, e.g. {_SERVICE}"
        )
    secret, namespace = host.replace(".", "-"), gateway.namespace
    template = "" if brokers.is_derivable else f"  brokerTemplate: {brokers.template}\n"
    chosen = "" if listener == "external" else f"  listener: {listener}\n"
    return _aligned(f"""\
# Values of the chart pulsar-ingress-proxy, beside {gateway.about}.
# The release is in the gateway's namespace, and so is the certificate, for {host} and *.{host}:
#   kubectl create secret tls {secret} -n {namespace} --cert=tls.crt --key=tls.key
# Brokers have the listener in their advertisedListeners: {listener}:pulsar+ssl://broker-N.{host}:6651
image:
  repository: {options.image or "registry.example.com/pulsar-ingress-proxy"}  # one that the cluster can pull
gateway:
  type: {options.gateway}
{gateway.comment}routes:
  create: true
  host: {host}  # in clients' service URL
  hostTemplate: broker-{{n}}.{{host}}  # of each broker, for clients: it leads to the gateway, too
  brokers: {brokers.count}  # each has a route for pulsar+ssl://
{template}{chosen}  tlsSecret: {secret}
  binary:
    port: 6651
    throughSidecar: false  # true: one port, messages through the sidecar, nothing else exposed
config:  # the proxy's own; docs/configuration.md has all keys
  # shadow: true  # first: decide, count and record, but change nothing
  brokers:
    webServiceUrl: [{brokers.url}]
""")


def _aligned(lines: str) -> str:
    """Comments after two spaces in one column, as far as lines are short enough."""
    return re.sub(r"(?m)^(.*\S)  (# .*)$", lambda match: f"{match[1]:<38} {match[2]}", lines)

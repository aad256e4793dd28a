"""The chart's values: keys, types, defaults and descriptions. `config` is the proxy's own config model."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from pulsar_ingress_proxy.config.model import Config

DATA = "/var/lib/pulsar-ingress-proxy"

# Stated, because the pods' grace period depends on it.
_DRAIN_SECONDS = int(Config.model_fields["drain_seconds"].default)

# Defaults for keys that `config` does not set. Beside a gateway: loopback, ports that no gateway uses, and a small
# event log, because the gateway uses the same disk.
CONFIG_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "sidecar": {
        "bindAddresses": ["http://127.0.0.1:18080"],
        "metrics": {"address": "0.0.0.0:19090"},
        "console": {"address": "127.0.0.1:19091"},
        "events": {"path": f"{DATA}/events", "retainBytes": 128 << 20},
        "kubernetes": {"statePath": f"{DATA}/state"},
        "drainSeconds": _DRAIN_SECONDS,
    },
    "gateway": {
        "bindAddresses": ["http://0.0.0.0:8080"],
        "metrics": {"address": "0.0.0.0:9090"},
        "console": {"address": "127.0.0.1:9091"},
        "events": {"path": f"{DATA}/events"},
        "kubernetes": {"statePath": f"{DATA}/state"},
        "drainSeconds": _DRAIN_SECONDS,
    },
}

Object = dict[str, Any]
Name = Annotated[str, Field(pattern=r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?$")]  # a Kubernetes name, or empty
Host = Annotated[str, Field(pattern=r"^((\*\.)?[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?$")]  # of clients, or empty
Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[int, Field(ge=0)]
Labels = dict[str, str]


class Section(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", populate_by_name=True)


class Image(Section):
    """The image."""

    repository: str = Field("pulsar-ingress-proxy", min_length=1, description="Image repository, without a tag.")
    tag: str = Field("", description="Image tag. Empty: the chart's appVersion.")
    digest: str = Field(
        "", pattern="^(sha256:[0-9a-f]{64})?$", description="Image digest, sha256:…. If set, it overrides the tag."
    )
    pull_policy: Literal["IfNotPresent", "Always", "Never"] = Field(
        "IfNotPresent",
        description="Image pull policy. With Always, every start of the gateway's pod depends on the registry.",
    )


class Gateway(Section):
    """Mode sidecar: the gateway that the sidecar runs beside."""

    type: Literal["istio", "istio-injection", "gateway-api", "envoy-gateway", "traefik"] = Field(
        "istio",
        description="How the container gets into the gateway's pods, and which kinds routes.create uses. istio: values "
        "of the Istio gateway chart. istio-injection: an injection template of istiod. gateway-api: parameters of a "
        "Gateway of Istio's. envoy-gateway: an EnvoyProxy. traefik: values of the Traefik chart.",
    )
    namespace: Name = Field(
        "",
        description="Namespace of the gateway's pods. It must be the release's namespace, which is also the default.",
    )
    name: Name = Field(
        "",
        description="Helm release of the gateway; for gateway-api the Gateway, for envoy-gateway the EnvoyProxy. "
        "Empty: istio-ingress or traefik; the first of routes.parentRefs; else the full name of the release.",
    )
    service_account: Name = Field(
        "",
        description="ServiceAccount of the gateway's pods, for the permissions of discovery. Empty: the default "
        "name in the gateway's chart.",
    )
    pod_labels: Labels = Field(
        {}, description="Labels of the gateway's pods. Empty: the default labels of the gateway's chart."
    )
    istio_certificates: bool = Field(
        False, description="Istio: write the workload's certificates to /etc/istio-certs, for brokers with STRICT mTLS."
    )
    gateway_class: Name = Field(
        "", description="GatewayClass of the Gateway that the chart creates. Empty: istio, or eg for Envoy Gateway."
    )
    allow_pod_network: bool = Field(
        False, description="Allow sockets that can be reached from outside the gateway's pod."
    )


class Binary(Section):
    """Routes for pulsar+ssl://. The gateway terminates TLS, and the TLS server name tells the brokers apart."""

    enabled: bool = Field(True, description="Create routes for the binary protocol.")
    port: Port = Field(6651, description="The gateway's port for pulsar+ssl://. One for all brokers.")
    broker_port: Port = Field(6650, description="The brokers' port for pulsar://.")
    through_sidecar: bool = Field(
        False,
        description="Lead the port to the sidecar, which carries all connections of clients. There are no HTTP routes "
        "then, and no routes to single brokers: this port is all that is exposed.",
    )


class Routes(Section):
    """Everything between the gateway and the brokers. Keys of config that these values imply need not be written."""

    create: bool = Field(False, description="Create the routes, in the kinds of gateway.type.")
    host: Host = Field(
        "", description="Host of the service URL, e.g. pulsar.example.com. If set, it also fills in the config."
    )
    hosts: list[Host] = Field(
        [], description="More hosts that lead to the sidecar. Those of config.ingresses do anyway."
    )
    host_template: str = Field(
        "broker-{n}.{host}", description="Host of each broker for clients. {n} is its number, {host} is routes.host."
    )
    brokers: Annotated[int, Field(ge=0, le=60)] = Field(
        0, description="Number of brokers. Required for binary routes to single brokers, which each need one."
    )
    broker_template: str = Field(
        "",
        description="Each broker's name in the cluster, e.g. pulsar-broker-{n}.pulsar-broker.pulsar.svc.cluster.local. "
        "Empty: derived from the first of config.brokers.webServiceUrl.",
    )
    listener: str = Field(
        "", description="Listener of the brokers for these clients. Empty: external, or internal with throughSidecar."
    )
    tls_secret: Name = Field(
        "",
        description="Secret with the certificate for the hosts, in the release's namespace. Empty: the host with "
        "hyphens for dots.",
    )
    https_port: Port = Field(443, description="The gateway's port for https://.")
    parent_refs: list[Object] = Field(
        [],
        description="Existing Gateways to attach the routes to, as parentRefs of the Gateway API; for Istio's own "
        "kinds name and namespace. Empty: the chart creates one.",
    )
    fail_open: bool = Field(
        False,
        description="Send requests straight to the brokers while the sidecar accepts no connections, for the paths "
        "that clients need. Not for gateway.type gateway-api.",
    )
    bypass: bool = Field(
        False,
        description="For emergencies: lead HTTP past the sidecar, to the brokers, for the paths that clients need.",
    )
    binary: Binary = Binary()


class Rbac(Section):
    """Permissions of discovery."""

    create: bool = Field(
        True, description="Create Roles in the watched namespaces if config.kubernetes.enabled is true."
    )


class ServiceAccount(Section):
    """Mode gateway: the ServiceAccount."""

    create: bool = Field(True, description="Create a ServiceAccount.")
    name: Name = Field(
        "",
        description="Name of the ServiceAccount. Empty: the full name of the release, or default if create is false.",
    )
    annotations: Labels = Field({}, description="Annotations of the ServiceAccount.")


class Autoscaling(Section):
    """Mode gateway: HorizontalPodAutoscaler. It replaces replicas."""

    enabled: bool = Field(False, description="Scale by CPU. One process uses one core.")
    min_replicas: Annotated[int, Field(ge=1)] = Field(2, description="Minimum number of pods.")
    max_replicas: Annotated[int, Field(ge=1)] = Field(10, description="Maximum number of pods.")
    target_cpu_utilization_percentage: Annotated[int, Field(alias="targetCPUUtilizationPercentage", ge=1)] = Field(
        70, description="Target CPU utilization, in percent of the CPU in resources.requests."
    )
    behavior: Object = Field({}, description="spec.behavior of the HorizontalPodAutoscaler.")


class PodDisruptionBudget(Section):
    """Mode gateway: PodDisruptionBudget, created if there is more than one replica."""

    enabled: bool = Field(True, description="Create a PodDisruptionBudget.")
    max_unavailable: int | str = Field(1, description="Maximum number or percentage of unavailable pods.")


class Service(Section):
    """Mode gateway: the Service. It has one port for each socket of config.bindAddresses, with the socket's number."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = Field(
        "ClusterIP", description="Type of the Service. ClusterIP is enough behind an ingress."
    )
    annotations: Labels = Field({}, description="Annotations of the Service.")


class PodMonitor(Section):
    """PodMonitor of the Prometheus operator. A sidecar has no Service of its own."""

    enabled: bool = Field(False, description="Create a PodMonitor. Requires the operator's CRDs.")
    interval: str = Field(
        "", pattern="^([0-9]+(ms|s|m|h))*$", description="Scrape interval, e.g. 30s. Empty: the operator's default."
    )
    labels: Labels = Field({}, description="Labels that the operator selects by, e.g. release: prometheus.")


class PrometheusRule(Section):
    """Alerts and recording rules."""

    enabled: bool = Field(False, description="Create a PrometheusRule. Requires the operator's CRDs.")
    labels: Labels = Field({}, description="Labels that the operator selects by, e.g. release: prometheus.")
    runbook_base: str = Field(
        "",
        description="URL before docs/runbooks/… in runbook_url of the alerts. Empty: where the chart's home has them, "
        "or the path alone if the chart has no home.",
    )
    dashboard_base: str = Field(
        "", description="URL of Grafana, for dashboard_url of the alerts. Empty: the path /d/… alone."
    )


class Dashboards(Section):
    """Grafana dashboards, one ConfigMap for each."""

    enabled: bool = Field(False, description="Create the ConfigMaps, for Grafana's dashboard sidecar.")
    labels: Labels = Field(
        {"grafana_dashboard": "1"}, description="Labels by which Grafana's dashboard sidecar finds them."
    )
    annotations: Labels = Field({}, description="Annotations of the ConfigMaps, e.g. grafana_folder: Pulsar.")


class NetworkPolicy(Section):
    """NetworkPolicy. In mode sidecar it selects the gateway's pods: read the README first."""

    enabled: bool = Field(False, description="Create a NetworkPolicy of type Ingress. Egress is not limited.")
    clients: list[Object] = Field([], description="Mode gateway: peers that may connect to the sockets. Empty: all.")
    metrics_from: list[Object] = Field([], description="Peers that may connect to the metrics port. Empty: all.")


class Checks(Section):
    """When `check` runs before a config is used."""

    pre_upgrade: bool = Field(
        True, description="Run a Job before each helm upgrade. If the config is bad, nothing changes."
    )
    init_container: bool = Field(
        True, description="Mode gateway: run an init container before each start. Mode sidecar never has it."
    )


class Test(Section):
    """`helm test`: a check of the config, and a real lookup."""

    enabled: bool = Field(True, description="Create the test pods' manifests.")
    url: str = Field(
        "",
        pattern="^(https?://[^ ]+)?$",
        description="URL for the lookup, e.g. https://pulsar.example.com. Empty: the Service in mode gateway. Required "
        "in mode sidecar.",
    )
    topic: str = Field(
        "persistent://public/default/helm-test",
        pattern="^(persistent|non-persistent)://[^/]+/[^/]+/.+$",
        description="Topic to look up. It need not exist.",
    )
    headers: list[Annotated[str, Field(pattern="^[^: ]+:")]] = Field(
        [],
        description="Headers of the lookup, e.g. Host: pulsar.example.com. $(NAME) is replaced by a variable of "
        "extraEnv.",
    )
    ca_file: str = Field(
        "", description="File in secretMounts with the CAs to trust for the lookup. Empty: the system's CAs."
    )


class SecretMount(Section):
    """Files from a Secret."""

    secret_name: Name = Field(min_length=1, description="Name of a Secret in the release's namespace.")
    mount_path: str = Field(pattern="^/", description="Directory in which the Secret's keys become files.")


_RESTRICTED: Object = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsGroup": 10001,
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_SPREAD: list[Object] = [
    {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway"}
    for key in ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
]


class Values(Section):
    """Values of the chart pulsar-ingress-proxy."""

    mode: Literal["sidecar", "gateway"] = Field(
        "sidecar",
        description="sidecar: a container beside a gateway. gateway: a Deployment between an ingress and the brokers.",
    )
    config: Config = Field(description="The proxy's config. docs/configuration.md lists the keys.")
    gateway: Gateway = Gateway()
    routes: Routes = Routes()
    image: Image = Image()
    image_pull_secrets: list[Object] = Field(
        [], description="Image pull secrets of the chart's own pods, e.g. name: registry."
    )
    name_override: Name = Field("", description="Replaces the chart's name in object names.")
    fullname_override: Name = Field("", description="Replaces the release's and the chart's name in object names.")
    common_labels: Labels = Field({}, description="Labels of all objects.")
    resources: Object = Field(
        {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        description="Resources of the container. A CPU limit would slow down every request.",
    )
    security_context: Object = Field(
        _RESTRICTED, description="Security context of the container. It meets the restricted Pod Security Standard."
    )
    secret_mounts: list[SecretMount] = Field(
        [],
        description="Secrets to mount as files, for tls, brokers.tls and brokers.adminTokenFile. The config "
        "itself holds no secrets.",
    )
    extra_env: list[Object] = Field(
        [], description="Environment variables of the container. PULSAR_INGRESS_… variables override the config."
    )
    extra_volumes: list[Object] = Field([], description="Additional volumes of the pod.")
    extra_volume_mounts: list[Object] = Field([], description="Additional volume mounts of the container.")
    pod_annotations: Labels = Field({}, description="Annotations of the pods; in mode sidecar, of the gateway's pods.")
    pod_labels: Labels = Field({}, description="Mode gateway: labels of the pods.")
    pre_stop_seconds: Seconds = Field(
        10,
        description="Seconds to wait before SIGTERM, so that clients stop connecting. Not used beside Istio and "
        "Envoy Gateway, where the gateway stops first.",
    )
    termination_grace_period_seconds: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="Mode gateway: termination grace period in seconds. null: preStopSeconds + "
        "config.drainSeconds + 10.",
    )
    replicas: Annotated[int, Field(ge=0)] = Field(2, description="Mode gateway: number of pods if autoscaling is off.")
    autoscaling: Autoscaling = Autoscaling()
    pod_disruption_budget: PodDisruptionBudget = PodDisruptionBudget()
    topology_spread_constraints: list[Object] = Field(
        _SPREAD,
        description="Mode gateway: topology spread constraints. Those without a labelSelector get the release's.",
    )
    affinity: Object = Field({}, description="Mode gateway: affinity of the pods.")
    node_selector: Labels = Field({}, description="Node selector of the chart's own pods.")
    tolerations: list[Object] = Field([], description="Tolerations of the chart's own pods.")
    priority_class_name: Name = Field("", description="Mode gateway: priority class of the pods.")
    pod_security_context: Object = Field(
        {}, description="Security context of the chart's own pods, e.g. fsGroup for a volume claim."
    )
    service: Service = Service()
    service_account: ServiceAccount = ServiceAccount()
    rbac: Rbac = Rbac()
    network_policy: NetworkPolicy = NetworkPolicy()
    pod_monitor: PodMonitor = PodMonitor()
    prometheus_rule: PrometheusRule = PrometheusRule()
    dashboards: Dashboards = Dashboards()
    checks: Checks = Checks()
    test: Test = Test()
    extra_objects: list[Object | str] = Field(
        [], description="Additional manifests, as objects or as text. They are templated."
    )


def with_defaults(config: Mapping[str, Any], mode: str) -> dict[str, Any]:
    """A config as the chart writes it. The user's keys override the defaults, in a section one by one."""
    whole = dict(config)
    for key, default in CONFIG_DEFAULTS[mode].items():
        whole[key] = {**default, **(whole.get(key) or {})} if isinstance(default, dict) else whole.get(key, default)
    return whole


def fields(model: type[BaseModel]) -> Iterator[tuple[str, Any, str, type[Section] | None]]:
    """Key, default, description and section model of each value."""
    for name, field in model.model_fields.items():
        section = field.annotation if isinstance(field.annotation, type) else None
        default = field.default.model_dump(by_alias=True) if isinstance(field.default, BaseModel) else field.default
        if section is Config:
            default, section = {}, None
        elif section is not None and not issubclass(section, Section):
            section = None
        about = field.description or (section.__doc__ if section else None)
        assert about, f"{name} has no description"
        yield field.alias or name, default, about, section

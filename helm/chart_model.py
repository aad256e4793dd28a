"""The chart's values: keys, types, defaults and what each is for. `config` is the proxy's own config model."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from pulsar_ingress_proxy.config.model import Config

DATA = "/var/lib/pulsar-ingress-proxy"

_DRAIN_SECONDS = int(Config.model_fields["drain_seconds"].default)  # said, as the pods' grace period depends on it

# What the chart says where `config` is silent. Beside a gateway: loopback, ports that no gateway has, and an event log
# that is small, as its disk is the gateway's too.
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
Name = Annotated[str, Field(pattern=r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?$")]  # in Kubernetes, or empty
Seconds = Annotated[int, Field(ge=0)]
Labels = dict[str, str]


class Section(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", populate_by_name=True)


class Image(Section):
    """The image."""

    repository: str = Field("pulsar-ingress-proxy", min_length=1, description="where the image is, without a tag")
    tag: str = Field("", description="empty: the chart's appVersion")
    digest: str = Field("", pattern="^(sha256:[0-9a-f]{64})?$", description="sha256:…; set: beats the tag")
    pull_policy: Literal["IfNotPresent", "Always", "Never"] = Field(
        "IfNotPresent", description="Always makes every start of the gateway's pod depend on the registry"
    )


class Gateway(Section):
    """Mode sidecar: the gateway that it stands beside."""

    type: Literal["istio", "istio-injection", "envoy-gateway", "traefik"] = Field(
        "istio",
        description="istio: by the Istio gateway chart; istio-injection: by a template of istiod; or one of the others",
    )
    namespace: Name = Field("", description="namespace of its pods, which must be the release's; empty: that")
    name: Name = Field(
        "", description="its release (of EnvoyProxy: the object); empty: istio-ingress, pulsar-ingress-proxy or traefik"
    )
    service_account: Name = Field(
        "", description="ServiceAccount of its pods, for discovery's rights; empty: what its chart calls it by default"
    )
    pod_labels: Labels = Field({}, description="labels of its pods; empty: what its chart gives them by default")
    istio_certificates: bool = Field(
        False, description="Istio: the workload's certificates in /etc/istio-certs, for brokers behind STRICT mTLS"
    )
    gateway_class: Name = Field("eg", description="Envoy Gateway: the GatewayClass that is to use the EnvoyProxy")
    allow_pod_network: bool = Field(False, description="allow sockets that others than the gateway beside it can reach")


class Rbac(Section):
    """Rights of discovery."""

    create: bool = Field(True, description="Roles in the watched namespaces, where config.kubernetes.enabled")


class ServiceAccount(Section):
    """Mode gateway: its own ServiceAccount."""

    create: bool = Field(True, description="make one")
    name: Name = Field("", description="empty: the full name; with create false: default")
    annotations: Labels = Field({}, description="annotations of it")


class Autoscaling(Section):
    """Mode gateway: HorizontalPodAutoscaler, in place of replicas."""

    enabled: bool = Field(False, description="scale by CPU; one process uses one core")
    min_replicas: Annotated[int, Field(ge=1)] = Field(2, description="pods at least")
    max_replicas: Annotated[int, Field(ge=1)] = Field(10, description="pods at most")
    target_cpu_utilization_percentage: Annotated[int, Field(alias="targetCPUUtilizationPercentage", ge=1)] = Field(
        70, description="percent of the CPU that resources.requests asks for"
    )
    behavior: Object = Field({}, description="spec.behavior of it")


class PodDisruptionBudget(Section):
    """Mode gateway: made where there is more than one replica."""

    enabled: bool = Field(True, description="make one")
    max_unavailable: int | str = Field(1, description="pods that may be away, or a percentage")


class Service(Section):
    """Mode gateway: one port for each socket of config.bindAddresses, by the socket's number."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = Field(
        "ClusterIP", description="an ingress stands before it"
    )
    annotations: Labels = Field({}, description="annotations of it")


class PodMonitor(Section):
    """PodMonitor of the Prometheus operator; a sidecar has no Service of its own."""

    enabled: bool = Field(False, description="needs the operator's CRDs")
    interval: str = Field("", pattern="^([0-9]+(ms|s|m|h))*$", description="e.g. 30s; empty: the operator's")
    labels: Labels = Field({}, description="e.g. release: prometheus, as the operator selects")


class PrometheusRule(Section):
    """Alerts and recording rules."""

    enabled: bool = Field(False, description="needs the operator's CRDs")
    labels: Labels = Field({}, description="e.g. release: prometheus, as the operator selects")
    runbook_base: str = Field(
        "", description="URL that docs/runbooks/… of the alerts is put behind; empty: the path alone"
    )


class Dashboards(Section):
    """Grafana dashboards, a ConfigMap each."""

    enabled: bool = Field(False, description="for Grafana's dashboard sidecar")
    labels: Labels = Field({"grafana_dashboard": "1"}, description="by which that sidecar finds them")
    annotations: Labels = Field({}, description="e.g. grafana_folder: Pulsar")


class NetworkPolicy(Section):
    """Who may connect. In mode sidecar it selects the gateway's pods: read the README first."""

    enabled: bool = Field(False, description="make one, of type Ingress; what goes out is not limited")
    clients: list[Object] = Field([], description="mode gateway: peers that may reach the sockets; empty: anybody")
    metrics_from: list[Object] = Field([], description="peers that may reach the metrics port; empty: anybody")


class Checks(Section):
    """Where `check` runs before a config is used."""

    pre_upgrade: bool = Field(True, description="a Job before each helm upgrade; a bad config leaves all as it is")
    init_container: bool = Field(True, description="mode gateway: before each start; never beside a gateway")


class Test(Section):
    """`helm test`: a check of the config, and a real lookup."""

    enabled: bool = Field(True, description="make the pods' manifests")
    url: str = Field(
        "",
        pattern="^(https?://[^ ]+)?$",
        description="e.g. https://pulsar.example.com; mode gateway: empty is its Service",
    )
    topic: str = Field(
        "persistent://public/default/helm-test",
        pattern="^(persistent|non-persistent)://[^/]+/[^/]+/.+$",
        description="the topic to look up; it need not exist",
    )
    headers: list[Annotated[str, Field(pattern="^[^: ]+:")]] = Field(
        [], description="of the lookup, as in Host: pulsar.example.com; $(TOKEN) is a variable of extraEnv"
    )
    ca_file: str = Field("", description="CAs to trust for it instead of the system's: a file of secretMounts")


class SecretMount(Section):
    """Files of a Secret."""

    secret_name: Name = Field(min_length=1, description="a Secret in the release's namespace")
    mount_path: str = Field(pattern="^/", description="the folder where its keys become files")


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
        "sidecar", description="sidecar: a container beside a gateway; gateway: a Deployment between it and the brokers"
    )
    config: Config = Field(description="the proxy's config in its own words, as in docs/configuration.md")
    gateway: Gateway = Gateway()
    image: Image = Image()
    image_pull_secrets: list[Object] = Field([], description="of the chart's own pods, e.g. name: registry")
    name_override: Name = Field("", description="in place of the chart's name")
    fullname_override: Name = Field("", description="in place of release and chart name")
    common_labels: Labels = Field({}, description="labels of every object")
    resources: Object = Field(
        {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        description="of the container; a CPU limit would slow every request down",
    )
    security_context: Object = Field(_RESTRICTED, description="of the container; the restricted Pod Security Standard")
    secret_mounts: list[SecretMount] = Field(
        [], description="Secrets as files, for tls, brokers.tls and brokers.adminTokenFile; config holds none itself"
    )
    extra_env: list[Object] = Field([], description="environment of the container; PULSAR_INGRESS_… beats config")
    extra_volumes: list[Object] = Field([], description="volumes of the pod")
    extra_volume_mounts: list[Object] = Field([], description="mounts of the container")
    pod_annotations: Labels = Field({}, description="annotations of the pods, the gateway's in mode sidecar")
    pod_labels: Labels = Field({}, description="mode gateway: labels of the pods")
    pre_stop_seconds: Seconds = Field(
        10,
        description="seconds before SIGTERM, for those who still connect; not beside Istio and Envoy, which end first",
    )
    termination_grace_period_seconds: Annotated[int, Field(ge=1)] | None = Field(
        None, description="mode gateway: seconds; null: preStopSeconds + config.drainSeconds + 10"
    )
    replicas: Annotated[int, Field(ge=0)] = Field(2, description="mode gateway: pods, where autoscaling is off")
    autoscaling: Autoscaling = Autoscaling()
    pod_disruption_budget: PodDisruptionBudget = PodDisruptionBudget()
    topology_spread_constraints: list[Object] = Field(
        _SPREAD, description="mode gateway: those without a labelSelector get the release's"
    )
    affinity: Object = Field({}, description="mode gateway: of the pods")
    node_selector: Labels = Field({}, description="of the chart's own pods")
    tolerations: list[Object] = Field([], description="of the chart's own pods")
    priority_class_name: Name = Field("", description="mode gateway: of the pods")
    pod_security_context: Object = Field({}, description="of the chart's own pods, e.g. fsGroup for a volume claim")
    service: Service = Service()
    service_account: ServiceAccount = ServiceAccount()
    rbac: Rbac = Rbac()
    network_policy: NetworkPolicy = NetworkPolicy()
    pod_monitor: PodMonitor = PodMonitor()
    prometheus_rule: PrometheusRule = PrometheusRule()
    dashboards: Dashboards = Dashboards()
    checks: Checks = Checks()
    test: Test = Test()
    extra_objects: list[Object | str] = Field([], description="more manifests; templated, as text or as objects")


def with_defaults(config: Mapping[str, Any], mode: str) -> dict[str, Any]:
    """A config as the chart writes it: the user's keys win, those of a section one by one."""
    whole = dict(config)
    for key, default in CONFIG_DEFAULTS[mode].items():
        whole[key] = {**default, **(whole.get(key) or {})} if isinstance(default, dict) else whole.get(key, default)
    return whole


def fields(model: type[BaseModel]) -> Iterator[tuple[str, Any, str, type[Section] | None]]:
    """Key, default, description, and the section that it is, of each value."""
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

"""The variables of dashboards: data source, cluster, namespace, job and instances. Every query is limited to them."""

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import dashboard as model

from dashboards.promql import select
from pulsar_ingress_proxy.observability.catalogue import Metric

DATASOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
SCOPE = tuple(f'{label}=~"${label}"' for label in ("cluster", "namespace", "job", "instance"))
ALL = model.VariableOption(selected=True, text=["All"], value=["$__all"])


def datasource() -> build.DatasourceVariable:
    return build.DatasourceVariable("datasource").label("Data source").type("prometheus")


def cluster(of: Metric) -> build.QueryVariable:
    """The Kubernetes clusters with this metric, which every process of the kind has."""
    return _labels("cluster", select(of), ".*").label("Cluster").include_all(True).current(ALL)


def namespace(of: Metric) -> build.QueryVariable:
    return _labels("namespace", select(of, *SCOPE[:1]), ".*").label("Namespace").include_all(True).current(ALL)


def job(of: Metric) -> build.QueryVariable:
    return _labels("job", select(of, *SCOPE[:2])).label("Job").include_all(True).current(ALL)


def instance(of: Metric, include_all: bool) -> build.QueryVariable:
    """Without `all`, the first instance is shown; more can be added to compare."""
    variable = _labels("instance", select(of, *SCOPE[:3])).label("Instance").include_all(include_all)
    return variable.current(ALL) if include_all else variable


def _labels(label: str, series: str, every: str = ".+") -> build.QueryVariable:
    """Of labels that a Prometheus may not have, `every` matches the series without."""
    return (
        build.QueryVariable(label)
        .query(f"label_values({series}, {label})")
        .datasource(DATASOURCE)
        .multi(True)
        .all_value(every)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.NATURAL_ASC)
    )

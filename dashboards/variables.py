"""The variables of dashboards: data source, job and instances. Every query is limited to them."""

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import dashboard as model

from dashboards.promql import select
from pulsar_ingress_proxy.observability.catalogue import Metric

DATASOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
JOB, INSTANCE = 'job=~"$job"', 'instance=~"$instance"'
SCOPE = (JOB, INSTANCE)
ALL = model.VariableOption(selected=True, text=["All"], value=["$__all"])


def datasource() -> build.DatasourceVariable:
    return build.DatasourceVariable("datasource").label("Data source").type("prometheus")


def job(of: Metric) -> build.QueryVariable:
    """The jobs with this metric, which every process of the kind has."""
    return _labels("job", select(of)).label("Job").include_all(True).current(ALL)


def instance(of: Metric, include_all: bool) -> build.QueryVariable:
    """Without `all`, the first instance is shown; more can be added to compare."""
    variable = _labels("instance", select(of, JOB)).label("Instance").include_all(include_all)
    return variable.current(ALL) if include_all else variable


def _labels(label: str, series: str) -> build.QueryVariable:
    return (
        build.QueryVariable(label)
        .query(f"label_values({series}, {label})")
        .datasource(DATASOURCE)
        .multi(True)
        .all_value(".+")
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.NATURAL_ASC)
    )

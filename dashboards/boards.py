"""A dashboard: its variables, its links, and its panels in rows, numbered and laid out in the order they are given."""

import json
from collections.abc import Mapping, Sequence

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model

from dashboards import variables
from dashboards.panels import Panel
from pulsar_ingress_proxy.observability.catalogue import Metric

TAG = "pulsar-ingress"


def board(
    title: str,
    uid: str,
    description: str,
    rows: Mapping[str, Sequence[Panel]],
    *,
    of: Metric,
    of_all: bool,
    links: Sequence[build.DashboardLink],
) -> build.Dashboard:
    """A dashboard for processes with this metric; with `of_all` all instances are selected at first, else one."""
    dashboard = (
        build.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG])
        .readonly()
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .time("now-3h", "now")
        .refresh("30s")
        .timezone("browser")
    )
    for link in links:
        dashboard.link(link)
    chosen = (variables.cluster(of), variables.namespace(of), variables.job(of), variables.instance(of, of_all))
    for variable in (variables.datasource(), *chosen):
        dashboard.with_variable(variable)
    number = 0
    for name, panels in rows.items():
        number += 1
        dashboard.with_row(build.Row(name).id(number))
        for panel in panels:
            number += 1
            dashboard.with_panel(panel.id(number))
    return dashboard


def link(title: str, uid: str, *carried: str) -> build.DashboardLink:
    """A link to another dashboard, with the same times, data source, cluster and namespace, and these variables."""
    chosen = "&".join(f"${{{variable}:queryparam}}" for variable in ("datasource", "cluster", "namespace", *carried))
    made = build.DashboardLink(title).type(model.DashboardLinkType.LINK).url(f"/d/{uid}?{chosen}")
    return made.keep_time(True)


def text(dashboard: build.Dashboard) -> str:
    return json.dumps(dashboard.build(), cls=JSONEncoder, indent=2, ensure_ascii=False, sort_keys=True) + "\n"

"""The pipeline: how current its tables are, what happened to the lines it read, and its cost."""

from collections.abc import Mapping, Sequence

from dashboards import uids
from dashboards.boards import board, link, text
from dashboards.panels import BLUE, GREEN, ORANGE, RED, Panel, in_words, lines, number, rows, stacked, states
from dashboards.promql import TARGET
from dashboards.queries import Query, counted, or_none, quantile, rate, shown
from pulsar_ingress_proxy.observability.catalogue import Metric, Pipeline

RANGE = "$__range"
TRIED = {"1": ("succeeded", GREEN), "0": ("failed", RED)}


def pipeline() -> str:
    return text(
        board(
            "Pulsar ingress / Pipeline",
            uids.PIPELINE,
            "From the sidecars' events to tables: how current they are, what happened to the lines, what it costs.",
            {
                "Are the tables current?": _now(),
                "Freshness and backlog": _backlog(),
                "Throughput": _throughput(),
                "Pipelines": _pipelines(),
            },
            of=Pipeline.build_info,
            of_all=True,
            links=[link("Overview", uids.OVERVIEW)],
        )
    )


def _since(metric: Metric, of: str = "min") -> str:
    """Seconds since a timestamp."""
    return f"time() - {of}({shown(metric)})"


def _now() -> Sequence[Panel]:
    read = counted(Pipeline.lines, window=RANGE)
    return [
        number(
            "Behind",
            "s",
            "Age of the data: all event files that existed this long ago are in the tables. A service is "
            "seconds behind, an hourly job at most an hour. If it is more, see "
            "docs/runbooks/pipeline-late.md.",
            Query(_since(Pipeline.caught_up)),
            steps=[(None, GREEN), (1800, ORANGE), (9000, RED)],
            decimals=0,
        ),
        number(
            "Newest event",
            "s",
            "Age of the newest event in the tables. If it is older than *Behind*, sidecars do not finish "
            "files, or nothing ships them to `--events`.",
            Query(_since(Pipeline.newest_event, "max")),
            decimals=0,
        ),
        number(
            "Last attempt",
            "short",
            "Whether the last attempt succeeded. If it failed, the log has the reason. See "
            "docs/runbooks/pipeline-failing.md.",
            Query(f"min({shown(Pipeline.last_attempt)})"),
            words=TRIED,
        ),
        number(
            "Failures",
            "short",
            "Failed attempts in this time range. A service tries again by itself. See "
            "docs/runbooks/pipeline-failing.md.",
            Query(or_none(counted(Pipeline.failures, window=RANGE))),
            steps=[(None, GREEN), (0.5, ORANGE)],
            decimals=0,
        ),
        number(
            "Waiting files",
            "short",
            "Event files listed and not yet ingested. Some are normal during a commit. If there are more "
            "and more, see *Busy*.",
            Query(f"sum({shown(Pipeline.waiting_files)})"),
        ),
        number(
            "New events",
            "short",
            "Events added to the tables in this time range. If there are none although sidecars have "
            "lookups, check that their files reach `--events`.",
            Query(or_none(counted(Pipeline.events, window=RANGE))),
            decimals=0,
        ),
        number(
            "In quarantine",
            "percentunit",
            "Share of invalid lines in this time range. The table `quarantine` has them, with the reason. "
            "See docs/runbooks/quarantine.md.",
            Query(f"{counted(Pipeline.quarantined, window=RANGE)} / ({read} > 0)"),
            steps=[(None, GREEN), (0.001, ORANGE), (0.01, RED)],
            decimals=2,
        ),
        number(
            "Busy",
            "percentunit",
            "Share of time spent on commits. Near 100 %, the pipeline cannot keep up: give it more cores "
            "or executors. See docs/pipeline.md.",
            Query(f"max(rate({shown(Pipeline.busy)}[$__rate_interval]))"),
            steps=[(None, GREEN), (0.6, ORANGE), (0.9, RED)],
            decimals=0,
        ),
    ]


def _backlog() -> Sequence[Panel]:
    return [
        lines(
            "Freshness",
            "s",
            "Age of the data (`behind`), of the newest event, of the last commit and of the last listing "
            "(`look`). A sawtooth is normal. If only `commit` grows, no new files arrive. If `look` "
            "grows, a commit takes very long or hangs: check the log.",
            Query(_since(Pipeline.caught_up), "behind"),
            Query(_since(Pipeline.newest_event, "max"), "newest event"),
            Query(_since(Pipeline.last_commit, "max"), "commit"),
            Query(_since(Pipeline.last_look), "look"),
            colours={"behind": ORANGE, "newest event": BLUE},
            span=12,
        ),
        lines(
            "Commit time",
            "s",
            "Time from a commit's first file to its end. It grows with the number of hours that a batch "
            "has events for, so late files cost more. A longer commit ingests more files, at a lower cost "
            "for each.",
            Query(quantile(0.5, Pipeline.commit_duration), "p50"),
            Query(quantile(0.95, Pipeline.commit_duration), "p95"),
            span=12,
        ),
        lines(
            "Waiting files",
            "short",
            "Event files listed and not yet ingested. If the number never returns to zero, the pipeline "
            "cannot keep up.",
            Query(shown(Pipeline.waiting_files), "{{instance}}"),
        ),
        lines(
            "Waiting bytes",
            "bytes",
            "Compressed size of the waiting files. A commit ingests at most 2 GiB.",
            Query(shown(Pipeline.waiting_bytes), "{{instance}}"),
        ),
        lines(
            "Busy",
            "percentunit",
            "Share of time spent on commits. Above 90 %, a burst makes the pipeline late: use more cores "
            "(`--master`) or executors. See docs/pipeline.md.",
            Query(f"rate({shown(Pipeline.busy)}[$__rate_interval])", "{{instance}}"),
            steps=[(None, GREEN), (0.9, RED)],
        ),
    ]


def _throughput() -> Sequence[Panel]:
    read, new, bad = rate(Pipeline.lines), rate(Pipeline.events), rate(Pipeline.quarantined)
    return [
        stacked(
            "Lines by outcome",
            "cps",
            "New events, invalid lines, and events ingested before. Some events come twice when a shipper "
            "retries. If there are many, files are shipped repeatedly.",
            Query(new, "new events"),
            Query(f"clamp_min({read} - {new} - {bad}, 0)", "ingested before"),
            Query(bad, "quarantine"),
            colours={"new events": GREEN, "ingested before": BLUE, "quarantine": RED},
        ),
        stacked(
            "Quarantined lines",
            "short",
            "Invalid lines. To see the reasons, run `select reason, count(*)` on the table `quarantine`. "
            "See docs/runbooks/quarantine.md.",
            Query(counted(Pipeline.quarantined), "lines"),
            colours={"lines": RED},
            bars=True,
        ),
        stacked(
            "Files and commits",
            "short",
            "Ingested files, and the commits that they took. Hundreds of files per commit are fine. With "
            "thousands, larger files (`events.rotateBytes` and `events.rotateSeconds` of the sidecars) "
            "cost less.",
            Query(counted(Pipeline.files), "files"),
            Query(counted(Pipeline.commits), "commits"),
            bars=True,
        ),
    ]


def _pipelines() -> Sequence[Panel]:
    def each(metric: str, *by: str) -> Query:
        return Query(f"max by ({', '.join((*TARGET, *by))}) ({metric})")

    columns: Mapping[str, Query] = {
        "": each(shown(Pipeline.build_info), "version", "command"),
        "Last attempt": each(shown(Pipeline.last_attempt)),
        "Behind (s)": each(f"time() - {shown(Pipeline.caught_up)}"),
        "Waiting files": each(shown(Pipeline.waiting_files)),
    }
    return [
        rows(
            "Pipelines",
            "One row per process, or per metrics file of a process that has ended (`run`, `once`). Use "
            "one writer for the same tables: of two, the second one to commit fails.",
            {
                "instance": "Instance",
                "job": "Job",
                "namespace": "Namespace",
                "cluster": "Cluster",
                "version": "Version",
                "command": "Command",
            },
            columns,
            {"Last attempt": in_words(TRIED)},
            span=16,
        ),
        states(
            "Attempts",
            "Results of attempts over time. A single failure is retried. See docs/runbooks/pipeline-failing.md.",
            Query(f"min by (instance) ({shown(Pipeline.last_attempt)})", "{{instance}}"),
            TRIED,
        ),
    ]

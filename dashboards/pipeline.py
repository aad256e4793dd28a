"""The pipeline: are the tables current, what came of the lines, and what it costs to keep up."""

from collections.abc import Mapping, Sequence

from dashboards import uids
from dashboards.boards import board, link, text
from dashboards.panels import BLUE, GREEN, ORANGE, RED, Panel, in_words, lines, number, rows, stacked, states
from dashboards.queries import Query, counted, or_none, quantile, rate, shown
from pulsar_ingress_proxy.observability.catalogue import Metric, Pipeline

RANGE = "$__range"
TRIED = {"1": ("good", GREEN), "0": ("failed", RED)}


def pipeline() -> str:
    return text(
        board(
            "Pulsar ingress / Pipeline",
            uids.PIPELINE,
            "From the sidecars' events to tables: how current they are, what came of the lines, what it costs.",
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
    """How long ago that was."""
    return f"time() - {of}({shown(metric)})"


def _now() -> Sequence[Panel]:
    read = counted(Pipeline.lines, window=RANGE)
    return [
        number(
            "Behind",
            "s",
            "All event files that were there so long ago are in the tables. A service is behind by seconds, an hourly "
            "job by an hour at most. More: docs/runbooks/pipeline-late.md.",
            Query(_since(Pipeline.caught_up)),
            steps=[(None, GREEN), (1800, ORANGE), (9000, RED)],
            decimals=0,
        ),
        number(
            "Newest event",
            "s",
            "So old is the newest event in the tables. Older than *Behind* says: sidecars finish no files, or nothing "
            "brings them to `--events`.",
            Query(_since(Pipeline.newest_event, "max")),
            decimals=0,
        ),
        number(
            "Last attempt",
            "short",
            "Whether the last attempt came to its end. Its log says why if not; docs/runbooks/pipeline-failing.md.",
            Query(f"min({shown(Pipeline.last_attempt)})"),
            words=TRIED,
        ),
        number(
            "Failures",
            "short",
            "Attempts in this time range that came to nothing. A service tries again by itself; "
            "docs/runbooks/pipeline-failing.md.",
            Query(or_none(counted(Pipeline.failures, window=RANGE))),
            steps=[(None, GREEN), (0.5, ORANGE)],
            decimals=0,
        ),
        number(
            "Waiting files",
            "short",
            "Event files seen and not taken yet. Some while a commit is under way; more and more: see *Busy*.",
            Query(f"sum({shown(Pipeline.waiting_files)})"),
        ),
        number(
            "New events",
            "short",
            "Taken into the tables in this time range. None, while sidecars have lookups: see that their files "
            "get to `--events`.",
            Query(or_none(counted(Pipeline.events, window=RANGE))),
            decimals=0,
        ),
        number(
            "In quarantine",
            "percentunit",
            "Share of the lines of this time range that are no event. The table `quarantine` has them, with the "
            "reason; docs/runbooks/quarantine.md.",
            Query(f"{counted(Pipeline.quarantined, window=RANGE)} / ({read} > 0)"),
            steps=[(None, GREEN), (0.001, ORANGE), (0.01, RED)],
            decimals=2,
        ),
        number(
            "Busy",
            "percentunit",
            "Share of the time that it works. Near 100 % it cannot keep up: give it more cores or executors; "
            "docs/pipeline.md.",
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
            "How long ago all that was there had been taken, a commit was made, files were looked for. A saw is good. "
            "If only `commit` grows, nothing new comes; if `look` grows, one commit takes all that time, or it hangs: "
            "see its log.",
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
            "From a commit's first file to its end. It grows with the hours that a batch has events of: late files "
            "cost more. Long ones take many files at once, which is cheaper for each.",
            Query(quantile(0.5, Pipeline.commit_duration), "p50"),
            Query(quantile(0.95, Pipeline.commit_duration), "p95"),
            span=12,
        ),
        lines(
            "Waiting files",
            "short",
            "Event files seen and not taken yet. If it never comes down to none, there is more than it can do.",
            Query(shown(Pipeline.waiting_files), "{{instance}}"),
        ),
        lines(
            "Waiting bytes",
            "bytes",
            "Their size, compressed as they are. A commit takes 2 GiB at most.",
            Query(shown(Pipeline.waiting_bytes), "{{instance}}"),
        ),
        lines(
            "Busy",
            "percentunit",
            "Share of the time that it works on commits. Above 90 % a rush will make it late: more cores "
            "(`--master`), or more executors; docs/pipeline.md.",
            Query(f"rate({shown(Pipeline.busy)}[$__rate_interval])", "{{instance}}"),
            steps=[(None, GREEN), (0.9, RED)],
        ),
    ]


def _throughput() -> Sequence[Panel]:
    read, new, bad = rate(Pipeline.lines), rate(Pipeline.events), rate(Pipeline.quarantined)
    return [
        stacked(
            "Lines by what became of them",
            "cps",
            "New events, lines that are none, and events taken before: some come twice where a shipper tries again. "
            "Many of those: files are shipped again and again.",
            Query(new, "new events"),
            Query(f"clamp_min({read} - {new} - {bad}, 0)", "taken before"),
            Query(bad, "quarantine"),
            colours={"new events": GREEN, "taken before": BLUE, "quarantine": RED},
        ),
        stacked(
            "Quarantined lines",
            "short",
            "Lines that are no event. `select reason, count(*)` of the table `quarantine` says why; "
            "docs/runbooks/quarantine.md.",
            Query(counted(Pipeline.quarantined), "lines"),
            colours={"lines": RED},
            bars=True,
        ),
        stacked(
            "Files and commits",
            "short",
            "What was taken, in how many commits. Hundreds of files a commit are fine; thousands: larger files "
            "(`events.rotateBytes`, `events.rotateSeconds` of the sidecars) cost less.",
            Query(counted(Pipeline.files), "files"),
            Query(counted(Pipeline.commits), "commits"),
            bars=True,
        ),
    ]


def _pipelines() -> Sequence[Panel]:
    def each(metric: str, *by: str) -> Query:
        return Query(f"max by ({', '.join(('job', 'instance', *by))}) ({metric})")

    columns: Mapping[str, Query] = {
        "": each(shown(Pipeline.build_info), "version", "command"),
        "Last attempt": each(shown(Pipeline.last_attempt)),
        "Behind (s)": each(f"time() - {shown(Pipeline.caught_up)}"),
        "Waiting files": each(shown(Pipeline.waiting_files)),
    }
    return [
        rows(
            "Pipelines",
            "One line a process, or a file of one that has ended (`run`, `once`). Several that write to the same "
            "tables exclude each other by a lock: keep one.",
            {"instance": "Instance", "job": "Job", "version": "Version", "command": "Command"},
            columns,
            {"Last attempt": in_words(TRIED)},
            span=16,
        ),
        states(
            "Attempts",
            "How attempts went, over time. A failure now and then mends itself; docs/runbooks/pipeline-failing.md.",
            Query(f"min by (instance) ({shown(Pipeline.last_attempt)})", "{{instance}}"),
            TRIED,
        ),
    ]

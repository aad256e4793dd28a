"""The answers of the console's API, from the state of the sidecar. Nothing here changes it."""

import asyncio
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pulsar_ingress_proxy import __version__
from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.console import models
from pulsar_ingress_proxy.console.figures import SECONDS, Figures, totals
from pulsar_ingress_proxy.console.filters import Matcher
from pulsar_ingress_proxy.console.history import History
from pulsar_ingress_proxy.console.models import moment
from pulsar_ingress_proxy.console.reachability import Reachability
from pulsar_ingress_proxy.console.settings import settings
from pulsar_ingress_proxy.discovery.manager import is_wanted
from pulsar_ingress_proxy.observability import event_lines
from pulsar_ingress_proxy.observability.metrics import Metrics, Number
from pulsar_ingress_proxy.observability.recent import Kept, Recent
from pulsar_ingress_proxy.routing.addresses import Entry
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.listeners import ServiceUrl
from pulsar_ingress_proxy.tools.config_warnings import config_warnings
from pulsar_ingress_proxy.tools.doctor import Finding
from pulsar_ingress_proxy.tools.explain import explain

PIECE = 32768
"""Bytes of decisions held against a filter at a time, before clients have their turn."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The parts of the sidecar that the console shows."""

    started: Config
    """The config at the start."""
    snapshot: Callable[[], Snapshot]
    not_ready: Callable[[], str | None]
    metrics: Metrics
    recent: Recent
    history: History
    source: str | None = None


class View:
    """Makes the answers of the API, one per method."""

    def __init__(self, sidecar: Shown) -> None:
        self._of = sidecar
        self.recent = sidecar.recent
        self.figures_kept = Figures(sidecar.metrics, sidecar.recent)
        self.reachability = Reachability(sidecar.snapshot)
        self._reviewed: tuple[Snapshot, list[str]] | None = None
        self._name = os.environ.get("POD_NAME") or socket.gethostname()

    def status(self) -> models.Status:
        of, snapshot, now = self._of, self._of.snapshot(), time.time()
        newest = next(of.history.newest_first)
        not_ready = of.not_ready()
        return models.Status(
            version=__version__,
            cluster=of.started.cluster_name,
            sidecar=self._name,
            source=of.source,
            started_at=moment(of.history.began),
            uptime_seconds=round(max(0.0, now - of.history.began), 3),
            ready=not_ready is None,
            not_ready=not_ready,
            generation=snapshot.generation,
            changed_at=newest.time,
            changed_by=newest.cause,
            changes=newest.changes,
            reload_problem=of.history.reload_problem,
            shadow=snapshot.config.shadow,
            counts=totals(of.metrics, of.recent),
        )

    def standing(self) -> dict[str, object]:
        """The state whose change makes the page ask for the status again."""
        return {
            "generation": self._of.snapshot().generation,
            "ready": self._of.not_ready() is None,
            "reloaded": self._of.history.reload_problem is None,
        }

    def ingresses(self) -> models.Ingresses:
        snapshot = self._of.snapshot()
        config = snapshot.config
        hits, misses = _by_ingress(self._of.metrics.hits), _by_ingress(self._of.metrics.misses)
        names = snapshot.known_listeners | config.named_listeners
        return models.Ingresses(
            sockets=config.bind_addresses,
            ingresses=[
                models.Ingress(
                    name=ingress.name,
                    listener=ingress.listener,
                    hosts=ingress.hosts,
                    expose=_sorted(ingress.expose),
                    allowed_listeners=_sorted(ingress.allowed_listeners),
                    # The config's come first.
                    source="config" if place < len(config.ingresses) else "discovery",
                    hits=hits.get(ingress.name, 0),
                    misses=misses.get(ingress.name, 0),
                )
                for place, ingress in enumerate(snapshot.ingresses)
            ],
            listeners=[
                models.Listener(
                    name=name,
                    internal=name == config.internal_listener_name,
                    default=name == config.lookup_listener_name,
                )
                for name in sorted(names)
            ],
        )

    def brokers(self) -> models.Brokers:
        snapshot = self._of.snapshot()
        reached = _by_entry(self.reachability.findings, snapshot)
        return models.Brokers(
            brokers=[_broker(entry, reached.get(entry, []), snapshot) for entry in snapshot.book.entries],
            pool=[_reach(finding, snapshot) for finding in reached.get(None, [])],
            conflicts=snapshot.conflicts,
            check=self.check(),
        )

    def check(self) -> models.Check:
        snapshot, checked = self._of.snapshot(), self.reachability.checked
        found = [finding.reachable for finding in self.reachability.findings if _is_judged(finding, snapshot)]
        return models.Check(
            running=self.reachability.is_running,
            checked_at=moment(checked) if checked is not None else None,
            reachable=sum(found),
            unreachable=len(found) - sum(found),
            not_judged=len(self.reachability.findings) - len(found),
        )

    def look(self) -> models.Check:
        """Start a round of `doctor` if the last one is old; returns its progress."""
        self.reachability.look()
        return self.check()

    def generations(self) -> models.Generations:
        return models.Generations(generations=list(self._of.history.newest_first))

    def findings(self) -> models.Findings:
        snapshot = self._of.snapshot()
        config = snapshot.config
        synced = self._of.metrics.discovery_synced.values
        return models.Findings(
            discovers=[
                *(["kubernetes"] if config.kubernetes.enabled else []),
                *(["admin"] if config.brokers.discover == "admin" else []),
            ],
            kinds=[models.Kind(kind=kind, synced=value == 1) for (kind,), value in sorted(synced.items())]
            if is_wanted(config)
            else [],
            conflicts=snapshot.conflicts,
            warnings=self._warnings(snapshot),
        )

    async def decisions(self, asked: models.DecisionsQuery) -> models.Decisions:
        recent = self.recent
        newest, made, kept = recent.newest, recent.made(asked.only), recent.kept(asked.only)
        found = await self.matching(Matcher(asked), recent.number(asked.since))
        return models.Decisions(
            decisions=[self.decision(one) for one in found[: asked.limit]],
            cursor=recent.cursor(newest),
            more=len(found[asked.limit :]),
            kept=kept,
            made=made,
        )

    async def matching(self, matcher: Matcher, number: int) -> list[Kept]:
        """The decisions after that number that match, the newest first."""
        found, size = [], 0
        for one in self.recent.after(number, matcher.only):
            size += len(one.line)
            if size > PIECE:
                await asyncio.sleep(0)
                size = 0
            if matcher.matches(one.line):
                found.append(one)
        return found

    def decision(self, kept: Kept) -> dict[str, object]:
        """A decision: the event and its cursor."""
        return {"cursor": self.recent.cursor(kept.number), **json.loads(kept.line)}

    def choices(self) -> models.Choices:
        """Without what only clients have named: no counter has a label for that."""
        snapshot, metrics = self._of.snapshot(), self._of.metrics
        hits, misses, requests = list(metrics.hits.values), list(metrics.misses.values), list(metrics.requests.values)
        ingresses = {ingress.name for ingress in snapshot.ingresses}
        counted = {labels[1] for labels in hits} - {"other"}
        return models.Choices(
            ingress=_names({*ingresses, *(labels[0] for labels in (*hits, *misses))}),
            listener=_names({*snapshot.known_listeners, *snapshot.config.named_listeners, *counted}),
            miss_reason=_names(labels[1] for labels in misses),
            status=_names(labels[2] for labels in requests if re.fullmatch("[1-5][0-9][0-9]", labels[2])),
        )

    def settings(self) -> models.Settings:
        snapshot, problem = self._of.snapshot(), self._of.history.reload_problem
        found = settings(snapshot.config, self._of.started)
        return models.Settings(
            generation=snapshot.generation,
            file=snapshot.config.sources.file,
            reload_problem=problem,
            # The lines would be those of a file that has changed since.
            settings=[one.model_copy(update={"line": None}) for one in found] if problem else list(found),
        )

    def figures(self) -> models.Figures:
        return models.Figures(seconds=SECONDS, figures=list(self.figures_kept.samples))

    def what_if(self, question: models.Question) -> models.Verdict:
        """Explain a request; raises CannotExplain. Nothing is kept or repeated: headers may have tokens."""
        snapshot = self._of.snapshot()
        headers = [(header.name, header.value.strip()) for header in question.headers]
        location = event_lines.redacted(question.location) if question.location is not None else None
        found = explain(
            snapshot, question.url, headers, question.bind, location, question.method, question.trusted, question.body
        )
        return models.Verdict(generation=snapshot.generation, **found.as_json())

    def _warnings(self, snapshot: Snapshot) -> list[str]:
        """The warnings about the config; cached, as a large book takes a while and pages ask often."""
        if self._reviewed is None or self._reviewed[0] is not snapshot:
            self._reviewed = snapshot, list(config_warnings(snapshot))
        return self._reviewed[1]


def _by_ingress(counter: Number) -> dict[str, int]:
    """A counter by its first label, which is the ingress."""
    found: dict[str, int] = {}
    for labels, value in counter.values.items():
        found[labels[0]] = found.get(labels[0], 0) + round(value)
    return found


def _by_entry(findings: Iterable[Finding], snapshot: Snapshot) -> dict[Entry | None, list[Finding]]:
    """The findings of `doctor` by line of the book; None for the pool."""
    found: dict[Entry | None, list[Finding]] = {}
    for finding in findings:
        entry = snapshot.book.describing(finding.broker)
        if entry is not None or finding.listener == "(pool)":
            found.setdefault(entry, []).append(finding)
    return found


def _broker(entry: Entry, found: list[Finding], snapshot: Snapshot) -> models.Broker:
    addresses = []
    for (listener, scheme), (source, by) in entry.sources.items():
        url = entry.listeners[listener][scheme]
        reach = [_reach(one, snapshot) for one in found if one.listener == listener and _is_at(one, entry, url)]
        addresses.append(models.Address(listener=listener, url=str(url), source=source, by=by, reach=reach))
    return models.Broker(
        broker=entry.broker, names=entry.names, template=entry.is_template, source=entry.source, addresses=addresses
    )


def _is_at(finding: Finding, entry: Entry, url: ServiceUrl) -> bool:
    """Whether it is about this URL, or about one that this template stands for."""
    return finding.url.startswith(f"{url.scheme}://") if entry.is_template else finding.url == str(url)


def _is_judged(finding: Finding, snapshot: Snapshot) -> bool:
    """Whether the finding counts: clients may reach names and ports that the sidecar cannot."""
    is_ours = finding.listener in ("(pool)", snapshot.config.internal_listener_name)
    return is_ours or finding.connects is True


def _reach(finding: Finding, snapshot: Snapshot) -> models.Reach:
    return models.Reach(
        broker=finding.broker,
        url=finding.url,
        reachable=finding.reachable,
        judged=_is_judged(finding, snapshot),
        answers=finding.answers,
        problem=finding.problem,
    )


def _names(found: Iterable[str]) -> list[str]:
    """In order, and without the empty label."""
    return sorted({name for name in found if name})


def _sorted(names: frozenset[str] | None) -> list[str] | None:
    return None if names is None else sorted(names)

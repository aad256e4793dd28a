"""The command line. Each command reads the config, does its work elsewhere, and prints; no tracebacks."""

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path

from pulsar_ingress_proxy import __version__
from pulsar_ingress_proxy.app import runner
from pulsar_ingress_proxy.config import Config, ConfigFaults, load
from pulsar_ingress_proxy.config.model import Log, json_schema
from pulsar_ingress_proxy.discovery.manager import missing_package
from pulsar_ingress_proxy.discovery.manifests import BadManifests, read_store
from pulsar_ingress_proxy.discovery.reconciler.store import ObjectStore
from pulsar_ingress_proxy.observability import log
from pulsar_ingress_proxy.routing.discovered import NOTHING
from pulsar_ingress_proxy.routing.snapshot import Snapshot, build
from pulsar_ingress_proxy.tools import completion, doctor, init, probe
from pulsar_ingress_proxy.tools.check import Report, check
from pulsar_ingress_proxy.tools.conformance import command as conformance
from pulsar_ingress_proxy.tools.explain import CannotExplain, explain
from pulsar_ingress_proxy.tools.preflight import CannotStart
from pulsar_ingress_proxy.tools.terminal import Palette, Progress

Command = Callable[[argparse.Namespace], int]

_UNREACHABLE = _WARNED = 1
_FAULT = 2


def main(arguments: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    command: Command = options.command
    try:
        return command(options)
    except (ConfigFaults, BadManifests, CannotExplain, CannotStart, init.BadOptions) as fault:
        print(fault, file=sys.stderr)
        return _FAULT
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pulsar-ingress-proxy",
        description="A sidecar beside a gateway: Pulsar lookups answered with addresses that the client can reach.",
        epilog="Any key of the config may also come from the environment: `PULSAR_INGRESS_REDIRECTS__MAX_HOPS=3`.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    configured = argparse.ArgumentParser(add_help=False)
    configured.add_argument("--config", required=True, metavar="FILE", help="the config, in YAML")
    # For commands that may look at a cluster, or at what is to be one.
    seeing = argparse.ArgumentParser(add_help=False, parents=[configured])
    where = seeing.add_mutually_exclusive_group()
    where.add_argument("--manifests", metavar="DIR", help="include objects from files, as if a cluster had only these")
    where.add_argument("--kubeconfig", metavar="FILE", help="include what discovery would find in this cluster now")
    seeing.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current one)")

    def add(
        name: str, run: Command, text: str, more: str = "", options: argparse.ArgumentParser | None = None
    ) -> argparse.ArgumentParser:
        about = f"{text[0].upper()}{text[1:]}. {more}".rstrip()
        command = commands.add_parser(name, help=text, description=about, parents=[options] if options else [])
        command.set_defaults(command=run)
        return command

    reloads = "SIGHUP or a changed file reloads. A bad config at start exits 2."
    serve = add("run", _run, "serve until SIGTERM or SIGINT", reloads, configured)
    serve.add_argument("--hold", action="store_true", help="serve 503 with the reason while the config is bad")
    prints = (
        "Prints what it means, and warnings. Exits 2 with one line for each fault that `run` would refuse at start."
    )
    validate = add("check", _check, "validate a config", prints, seeing)
    validate.add_argument(
        "--no-files",
        action="store_true",
        help="do not look for what `run` needs here beside the config: certificates, keys, tokens, packages",
    )
    validate.add_argument("--strict", action="store_true", help="exit 1 if there are warnings or conflicts")
    validate.add_argument("--json", action="store_true", help="print JSON")

    dry = add(
        "explain",
        _explain,
        "show the decision on a request, rule by rule, without sending it",
        "Also which broker it would go to, and what would become of a redirect and of the addresses in an answer. "
        "For a miss, it prints the config that would make it a hit.",
        seeing,
    )
    dry.add_argument(
        "url",
        metavar="URL",
        help="as the client sees it: https://pulsar.example.com/lookup/v2/topic/… or pulsar+ssl://pulsar.example.com:6651",
    )
    header = "a header, from a trusted proxy"
    dry.add_argument("-H", dest="headers", action="append", default=[], metavar="'Name: value'", help=header)
    dry.add_argument("--bind", metavar="HOST:PORT", help="the socket that receives it, as in bindAddresses")
    dry.add_argument("--location", metavar="URL", help="show what happens to this redirect from a broker")
    dry.add_argument("--body", metavar="FILE", help="show what happens to this answer from a broker (a lookup's JSON)")
    dry.add_argument("--json", action="store_true", help="print JSON")

    tries = (
        "For each: whether the name resolves, the port opens, the certificate covers the name, and the broker answers; "
        "401 and 403 are answers. Exits 1 if something is unreachable."
    )
    reach = add("doctor", _doctor, "try every broker's addresses from here", tries, seeing)
    reach.add_argument("--listener", metavar="NAME", help="only this listener's addresses")
    reach.add_argument("--json", action="store_true", help="print JSON")

    conformance.add_options(add("conformance", _conformance, conformance.SUMMARY, conformance.DETAILS, seeing))

    demo = add("demo", _demo, "everything on one machine: simulated brokers, the proxy, a client", "Ctrl-C ends it.")
    demo.add_argument("--once", action="store_true", help="run, print and exit")
    demo.add_argument(
        "--events",
        type=Path,
        metavar="DIR",
        help="keep the event log in DIR, and print the commands of pulsar-ingress-pipeline for it at the end",
    )

    init.add_options(add("init", _init, init.SUMMARY, init.DETAILS))
    probe.add_options(add("probe", probe.run, probe.SUMMARY, probe.DETAILS))
    completion.add_options(add("completion", _completion, completion.SUMMARY, completion.DETAILS))
    add("config-schema", _config_schema, "print the JSON schema of the config file")
    return parser


def _read(options: argparse.Namespace) -> tuple[Snapshot, ObjectStore | None]:
    """The cluster's objects if there are any to look at, and the snapshot that they and the config give."""
    config = load(options.config)
    store = _store(options, config)
    return build(config, discovered=store.discovered() if store is not None else NOTHING), store


def _store(options: argparse.Namespace, config: Config) -> ObjectStore | None:
    if options.manifests is not None:
        return read_store(options.manifests, config)
    if options.kubeconfig is None:
        return None
    if problem := missing_package():
        raise CannotExplain(f"--kubeconfig: {problem}")
    from pulsar_ingress_proxy.discovery.informers import CannotList, list_store

    try:
        return asyncio.run(list_store(config, options.kubeconfig, options.context))
    except CannotList as fault:
        raise CannotExplain(str(fault)) from None


def _run(options: argparse.Namespace) -> int:
    log.set_up(Log())
    with asyncio.Runner(loop_factory=_loop_factory()) as loop_runner:
        loop_runner.run(runner.run(Path(options.config), options.hold))
    return 0


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The faster loop where there is one; it is no part of what is installed on every platform."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _check(options: argparse.Namespace) -> int:
    try:
        snapshot, store = _read(options)
    except (ConfigFaults, BadManifests, CannotExplain) as fault:
        report = Report(options.config, str(fault).splitlines())
    else:
        report = check(options.config, snapshot, store, with_files=not options.no_files)
    if options.json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        print(report.as_text(), file=sys.stderr if report.faults else sys.stdout)
    if report.faults:
        return _FAULT
    return _WARNED if options.strict and report.is_questionable else 0


def _explain(options: argparse.Namespace) -> int:
    snapshot, _ = _read(options)
    headers = []
    for line in options.headers:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise CannotExplain(f"-H '{line}' is not a header: write -H 'Name: value'")
        headers.append((name.strip(), value.strip()))
    body = None
    if options.body is not None:
        try:
            body = Path(options.body).read_text()
        except (OSError, UnicodeDecodeError) as fault:
            raise CannotExplain(f"--body {options.body}: cannot be read: {getattr(fault, 'strerror', fault)}") from None
    explanation = explain(snapshot, options.url, headers, options.bind, options.location, body=body)
    print(json.dumps(explanation.as_json(), indent=2) if options.json else explanation.as_text())
    return 0


def _doctor(options: argparse.Namespace) -> int:
    snapshot, store = _read(options)
    if options.listener is not None and options.listener not in snapshot.known_listeners:
        known = ", ".join(sorted(snapshot.known_listeners)) or "none"
        raise CannotExplain(f"no broker has an address on listener '{options.listener}'; there are {known}")

    tried, progress = count(1), Progress(sys.stderr)

    def show_progress(finding: doctor.Finding) -> None:
        progress.show(f"{next(tried)} addresses tried", finding.url)

    found = store.reconciled() if store is not None else None
    gaps = doctor.gaps(snapshot, options.listener, found.hosts, found.unmapped) if found is not None else ()
    try:
        findings = asyncio.run(doctor.examine(snapshot, options.listener, show_progress, gaps))
    finally:
        progress.clear()
    if options.json:
        shown = [asdict(finding) | {"reachable": finding.reachable} for finding in findings]
        print(json.dumps(shown, indent=2))
    else:
        print("\n".join(doctor.as_lines(findings, Palette(sys.stdout))))
    return 0 if all(finding.reachable for finding in findings) else _UNREACHABLE


def _conformance(options: argparse.Namespace) -> int:
    snapshot, _ = _read(options)
    return conformance.run(options, snapshot)


def _demo(options: argparse.Namespace) -> int:
    from pulsar_ingress_proxy.demo import show  # here, so that a sidecar loads no simulated brokers

    async def play() -> bool:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        return await show.run(options.once, ended, options.events)

    if options.events is not None:
        try:
            options.events.mkdir(parents=True, exist_ok=True)
        except OSError as fault:
            raise CannotStart(f"--events {options.events}: {fault.strerror}") from None
    return 0 if asyncio.run(play()) else 1


def _init(options: argparse.Namespace) -> int:
    print(init.text(options), end="")
    return 0


def _completion(options: argparse.Namespace) -> int:
    print(completion.script(options.shell, make_parser()), end="")
    return 0


def _config_schema(_: argparse.Namespace) -> int:
    print(json.dumps(json_schema(), indent=2))
    return 0

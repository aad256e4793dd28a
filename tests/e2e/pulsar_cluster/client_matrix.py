"""Every client by every way through the sidecar, as the tables of docs/clients.md: run as a program.

The prose of that page is written by hand; the program writes what stands between its marks, and fails if a client does
not do what `FAILS` expects.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import admin_calls
import go_modules
import jvm
import rust_program
from artifacts import DEFAULT, RELEASES
from brokers import Options
from caching import Missing
from children import Failed
from clients import PYTHON, ClientFailed, talking
from cluster import Cluster, running
from comparison import plain
from conversations import (
    ANONYMOUS,
    BINARY_FOLLOW,
    BINARY_REWRITE,
    CONVERSATIONS,
    HTTP_FOLLOW,
    HTTP_REWRITE,
    THROUGH,
    Way,
)

PAGE = Path(__file__).parents[3] / "docs" / "clients.md"
MARKS = ("<!-- written by tests/e2e/pulsar_cluster/client_matrix.py -->", "<!-- to here -->")
HTTP, BINARY = (HTTP_REWRITE, HTTP_FOLLOW), (BINARY_FOLLOW, BINARY_REWRITE, THROUGH)
ADMIN_HEAD = """\
The calls of the Java admin client, through the sidecar beside those made of a broker directly. These brokers have no
function workers, so the calls about functions and sinks get the same refusal."""
MESSAGES = ("produce and consume", "owned topic", "partitions", "reader", "topic moves", "token")


@dataclass(frozen=True, slots=True)
class Kind:
    """A client: what runs it, the ways it knows, and what it can do at all."""

    name: str
    program: Callable[[], Sequence[str | Path]]
    ways: Sequence[Way]
    conversations: Sequence[str]


KINDS = (
    Kind("Go", lambda: [go_modules.built(go_modules.PULSAR_CLIENT)["told"]], (*HTTP, *BINARY), list(CONVERSATIONS)),
    Kind("Rust", lambda: [rust_program.built()], BINARY, (*MESSAGES, "pattern")),
    Kind("Python (C++)", lambda: PYTHON, (*HTTP, *BINARY), (*MESSAGES, "pattern")),
    Kind("WebSocket", lambda: [sys.executable, Path(__file__).with_name("told_websocket.py")], HTTP, MESSAGES),
)
# What does not hold. A redirect in `pulsar://` leads past the sidecar to a broker's port, which answers with internal
# addresses; and libcurl keeps a token from other hosts.
FAILS = frozenset(
    {
        ("Go", BINARY_REWRITE.name, "produce and consume"),
        ("Rust", BINARY_REWRITE.name, "produce and consume"),
        ("Python (C++)", BINARY_REWRITE.name, "produce and consume"),
        ("Python (C++)", HTTP_REWRITE.name, "token"),
    }
)

Outcomes = Mapping[tuple[str, str, str, str], str | None]  # by version, client, way, conversation; None, or the failure


def options(line: str) -> Options:
    """Who comes without a token is anonymous, and has rights of their own."""
    conf = {"webSocketServiceEnabled": "true", "anonymousUserRole": ANONYMOUS}
    return Options(line=line, authorization=True, conf=conf)


def has(kind: Kind, way: Way) -> list[str]:
    """The conversations of a client by that way. Admin clients have http:// URLs; two show what `rewrite` does."""
    if way == BINARY_REWRITE:
        return ["produce and consume", "owned topic"]
    return [name for name in kind.conversations if name != "admin" or way in HTTP]


def outcome(cluster: Cluster, kind: Kind, way: Way, conversation: str) -> str | None:
    """None where it holds. A failure counts where it happens twice: brokers have bad moments of their own."""
    program = kind.program()
    for _ in range(2):
        try:
            CONVERSATIONS[conversation](cluster, lambda token: talking(cluster, way.url, token, program=program))
        except ClientFailed as failed:
            why = plain(failed.failure)
        except AssertionError as failed:
            why = plain(str(failed))
        else:
            return None
    return why


def outcomes_of(cluster: Cluster, version: str) -> Outcomes:
    found: dict[tuple[str, str, str, str], str | None] = {}
    for way in (*HTTP, *BINARY):
        with way.open(cluster):
            for kind in (kind for kind in KINDS if way in kind.ways):
                for conversation in has(kind, way):
                    why = outcome(cluster, kind, way, conversation)
                    found[version, kind.name, way.name, conversation] = why
                    say(f"{version}: {kind.name}, {way.name}: {conversation}: {why or 'holds'}")
    return found


def clients_table(outcomes: Outcomes) -> list[str]:
    versions = list(dict.fromkeys(version for version, *_ in outcomes))
    lines = ["| client | way | Pulsar | works | fails |", "|---|---|---|---|---|"]
    for kind in KINDS:
        for way in kind.ways:
            rows: dict[str, list[str]] = {}
            for version in versions:
                failed = [name for name in has(kind, way) if outcomes[version, kind.name, way.name, name]]
                held = [name for name in has(kind, way) if name not in failed]
                rows.setdefault(f"{', '.join(held)} | {', '.join(failed)}", []).append(version)
            for row, which in rows.items():
                lines.append(f"| {kind.name} | {way.name} | {', '.join(which)} | {row} |")
    said = {(kind, way, name, why): None for (_, kind, way, name), why in outcomes.items() if why}
    lines += ["", "| what fails | what the client says |", "|---|---|"]
    return lines + [f"| {kind}, {way}: {name} | `{why}` |" for kind, way, name, why in said]


def admin_table(asked: admin_calls.Results, got: Mapping[str, admin_calls.Results]) -> list[str]:
    lines = [f"| interface | calls | {' | '.join(got)} |", f"|---|---|{'---|' * len(got)}"]
    for interface in dict.fromkeys(interface for interface, _ in asked):
        calls = [call for call in asked if call[0] == interface]
        cells = []
        for results in got.values():
            differing = [method for _, method in (call for call in calls if results.get(call) != asked[call])]
            cells.append(f"**not the same: {', '.join(differing)}**" if differing else "the same")
        lines.append(f"| {interface} | {', '.join(method for _, method in calls)} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    begin, end = MARKS
    page = PAGE.read_text()
    assert begin in page, f"{PAGE} has lost its marks"
    assert end in page, f"{PAGE} has lost its marks"
    outcomes: dict[tuple[str, str, str, str], str | None] = {}
    asked: admin_calls.Results = {}
    got: dict[str, admin_calls.Results] = {}
    try:
        for line in sorted(RELEASES):
            with running(options(line), say) as cluster:
                outcomes |= outcomes_of(cluster, RELEASES[line].version)
                if line == DEFAULT:
                    asked = admin_calls.direct(cluster)
                    got = {way.name: admin_calls.through(cluster, way) for way in HTTP}
    except (Failed, Missing, jvm.Missing) as failed:
        sys.exit(str(failed))
    written = "\n".join([*clients_table(outcomes), "", ADMIN_HEAD, "", *admin_table(asked, got)])
    before, after = page.partition(begin)[0], page.partition(end)[2]
    PAGE.write_text(f"{before}{begin}\n\n{written}\n\n{end}{after}")
    wrong = [f"{key}: {why or 'holds'}" for key, why in outcomes.items() if (key[1:] in FAILS) != bool(why)]
    wrong += [
        f"{way}: {call}: {results.get(call)} instead of {came}"
        for way, results in got.items()
        for call, came in asked.items()
        if results.get(call) != came
    ]
    if wrong:
        sys.exit("\n".join(wrong))


def say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    main()

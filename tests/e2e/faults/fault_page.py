"""The page with what clients saw of each fault."""

from collections.abc import Mapping
from pathlib import Path

from fault_runs import DURING, ROW, STEADY, Result
from faults import FAULTS

PAGE = Path(__file__).parents[3] / "docs/faults.md"
OUTCOMES = {
    "usual": "answered as usual",
    "cut": "connection cut",
    "unconnected": "connection refused",
    "refused": "refused at CONNECT",
    "silent": "client gave up",
    "wrong": "**wrong**",
}
HEAD = f"""# Faults

What clients see when something fails around the sidecar, or the sidecar itself fails. Clients of both protocols send
requests without a pause, to a sidecar with three simulated brokers, each a process in a network of its own. After
{STEADY} normal operations the fault begins. It lasts until an operator can see it, and for {DURING} operations more.
Then it is healed. It counts as normal again after {ROW} normal operations in a row. Written by `make e2e-full`;
`make e2e` runs the faults marked with *.

Clients and brokers write down what they sent and received; every request has a mark and a checksum. Four rules
are checked by these two histories alone, with `leaks: block` and `miss: reject`, and held in all runs:

1. No lookup leaves with a listener that its ingress does not allow.
2. No client gets an address that is off its listener.
3. No byte of one request reaches another, in either direction.
4. What began has ended, and is recorded in metrics and events, once. If the sidecar is killed, only the events of the
   [last write](events.md#if-the-sidecar-is-killed) may be missing.

An answer that breaks a rule would be counted as wrong. Refusals are named by status and reason, or `binary` and reason.
Numbers of operations differ between runs, as does the time, which includes the start of what was killed.

| fault | what happens | what clients saw | wrong | normal again after | what an operator sees |
|---|---|---|---|---|---|
"""


def page(results: Mapping[str, Result]) -> str:
    return HEAD + "".join(
        f"| {fault.name}{'*' if fault.is_quick else ''} | {fault.happens} | {_seen(results[fault.name])} | "
        f"{results[fault.name].seen['wrong']} | {_time(results[fault.name].seconds)} | {fault.shows} |\n"
        for fault in FAULTS
    )


def _seen(result: Result) -> str:
    kinds = [(kind, count) for kind, count in result.seen.most_common() if kind != "wrong"]
    return ", ".join(f"{_named(kind)} {count:,}" for kind, count in kinds)


def _named(kind: str) -> str:
    if kind in OUTCOMES:
        return OUTCOMES[kind]
    status, reason = kind.split(" ")
    return f"{status} `{reason}`"


def _time(seconds: float) -> str:
    return "at once" if seconds < 0.1 else f"{seconds:.1f} s"

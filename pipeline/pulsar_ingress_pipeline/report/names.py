"""Names as they are shown: none, several at once, or long with a tail that all share."""

from collections.abc import Sequence

from pulsar_ingress_pipeline.report.marks import clip
from pulsar_ingress_pipeline.report.records import Name, Others


def shown(name: Name, nobody: str = "none") -> str:
    match name:
        case Others(count):
            return f"{count:,} more"
        case None:
            return nobody
        case "":
            return "(empty)"
        case _:
            return clip(name)


def common_tail(names: Sequence[str]) -> str:
    """`.pulsar.svc:8080` of `broker-0.pulsar.svc:8080` and `broker-1.pulsar.svc:8080`; empty where they share none."""
    if len(names) < 2:
        return ""
    parts = [name.split(".") for name in names]
    count = 0
    while all(len(part) > count + 1 for part in parts) and len({part[-1 - count] for part in parts}) == 1:
        count += 1
    return "." + ".".join(parts[0][-count:]) if count else ""


def clip_middle(name: str, longest: int) -> str:
    """The end is what tells brokers apart."""
    kept = longest // 3
    return name if len(name) <= longest else f"{name[: longest - kept - 1]}…{name[-kept:]}"


def order(name: Name, amount: float) -> tuple[int, float, str]:
    """The largest first; then the rest of the names, then none."""
    if isinstance(name, Others):
        return 1, 0, ""
    return (2, 0, "") if name is None else (0, -amount, name)

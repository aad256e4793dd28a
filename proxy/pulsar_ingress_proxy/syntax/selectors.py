"""Label selectors in kubectl's syntax: `app=pulsar,component in (broker, proxy),!canary`. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_KEY = r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?"
_VALUE = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_EQUAL = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})?")
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s+\(\s*({_VALUE}(?:\s*,\s*{_VALUE})*)\s*\)")
_EXISTS = re.compile(rf"(!?)\s*({_KEY})")
_COMMA = re.compile(r",(?![^(]*\))")  # not within ( )


@dataclass(frozen=True, slots=True)
class Requirement:
    """A label and the values it must or must not have; without values, whether it must exist."""

    key: str
    values: frozenset[str] | None
    wanted: bool

    def holds(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        # As in Kubernetes, a missing label satisfies `!=` and `notin`.
        is_so = value is not None if self.values is None else value in self.values
        return is_so is self.wanted


@dataclass(frozen=True, slots=True)
class Selector:
    """All requirements must hold."""

    requirements: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.holds(labels) for requirement in self.requirements)


def parse_selector(text: str) -> Selector:
    """Parse a selector; raises ValueError that says what is wrong and how to fix it."""
    return Selector(tuple(_requirement(part.strip()) for part in _COMMA.split(text)))


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether labels match the selector of a Service or an Istio Gateway."""
    return selector.items() <= labels.items()


def _requirement(part: str) -> Requirement:
    if match := _EQUAL.fullmatch(part):
        return Requirement(match[1], frozenset([match[3] or ""]), match[2] != "!=")
    if match := _SET.fullmatch(part):
        return Requirement(match[1], frozenset(re.split(r"\s*,\s*", match[3])), match[2] == "in")
    if match := _EXISTS.fullmatch(part):
        return Requirement(match[2], None, not match[1])
    raise ValueError(f"'{part}' is not a requirement of labels: write app=pulsar,component=broker, or key in (a, b)")

"""All cases, by the file of the corpus that they stand in."""

from collections.abc import Mapping
from pathlib import Path

import binary_cases
import http_lookup_cases
import http_redirect_cases
import http_request_cases
from player import Case

GROUPS: Mapping[str, Mapping[str, Case]] = {
    **http_lookup_cases.GROUPS,
    **http_redirect_cases.GROUPS,
    **http_request_cases.GROUPS,
    **binary_cases.GROUPS,
}


def corpus(group: str) -> Path:
    return Path(__file__).parent / "corpus" / f"{group}.json"

"""Settings shared by the aiohttp servers: metrics and probes, the console, and `run --hold`."""

import logging
from typing import Any

from aiohttp.http_exceptions import HttpProcessingError


def _is_ours(record: logging.LogRecord) -> bool:
    """Drop parse errors from the log: they are the client's fault, and get a 400."""
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


_log = logging.getLogger("proxy.servers")
_log.addFilter(_is_ours)

SETTINGS: dict[str, Any] = {"access_log": None, "logger": _log, "auto_decompress": False}
"""Arguments of aiohttp's runners and servers."""

"""The log: readable lines on a terminal, one JSON object a line elsewhere."""

import json
import logging
import sys
import time
from typing import Literal

from proxy.config.model import Log


class _JsonLines(logging.Formatter):
    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)  # ASCII, so that nothing in a message can be taken for the end of a line


def set_up(settings: Log) -> None:
    """Send the log to stderr in the form asked for."""
    handler = logging.StreamHandler(sys.stderr)
    if _form(settings.format) == "json":
        handler.setFormatter(_JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())


def _form(wanted: Literal["auto", "text", "json"]) -> Literal["text", "json"]:
    if wanted == "auto":
        return "text" if sys.stderr.isatty() else "json"
    return wanted

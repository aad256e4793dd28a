"""The log: text on a terminal, one JSON object per line elsewhere."""

import json
import logging
import sys
import time

from pulsar_ingress_proxy.config.model import Log

_MOST = 4096
"""Maximum characters of a message, as parts may come from clients."""
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    code: f"\\u{code:04x}" for code in (0x2028, 0x2029)
}


def _message(record: logging.LogRecord) -> str:
    said = record.getMessage()
    return said if len(said) <= _MOST else f"{said[:_MOST]}…"


class _TextLines(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        record.message = _message(record).translate(_CONTROLS)  # one line, even if a client chose the text
        return super().formatMessage(record)


class _JsonLines(logging.Formatter):
    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)  # ASCII, so that no character in a message can be taken for a line break


def set_up(settings: Log) -> None:
    """Send the log to stderr in the configured format."""
    handler = logging.StreamHandler(sys.stderr)
    if settings.format == "json" or (settings.format == "auto" and not sys.stderr.isatty()):
        handler.setFormatter(_JsonLines())
    else:
        handler.setFormatter(_TextLines("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())

"""What tests of the log and of traces share."""

from http_fixtures import broker, start, tidy

__all__ = ["broker", "start", "tidy"]

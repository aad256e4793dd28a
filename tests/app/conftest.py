"""What tests of the app share."""

from http_fixtures import begin, broker, other, pytest_asyncio_loop_factories, start, tidy

__all__ = ["begin", "broker", "other", "pytest_asyncio_loop_factories", "start", "tidy"]

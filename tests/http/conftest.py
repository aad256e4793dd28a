"""What tests over HTTP share."""

from http_fixtures import begin, broker, exchange, other, pytest_asyncio_loop_factories, start, tidy

__all__ = ["begin", "broker", "exchange", "other", "pytest_asyncio_loop_factories", "start", "tidy"]

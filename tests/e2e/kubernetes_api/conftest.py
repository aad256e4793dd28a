"""The fixtures of the tests with a real API server."""

from api_fixtures import admin, api_server, namespace

__all__ = ["admin", "api_server", "namespace"]

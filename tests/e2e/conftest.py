"""The fixtures of all end-to-end tests."""

from api_fixtures import admin, api_server, namespace
from worlds import world

__all__ = ["admin", "api_server", "namespace", "world"]

"""The fixtures of all end-to-end tests."""

from api_fixtures import admin, api_server, namespace
from gateway_stack import stack

__all__ = ["admin", "api_server", "namespace", "stack"]

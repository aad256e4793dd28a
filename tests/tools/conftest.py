"""The fixtures of the tools' tests."""

from client_place import names, place

__all__ = ["names", "place"]

"""The fixture of all end-to-end tests."""

from worlds import world

__all__ = ["world"]

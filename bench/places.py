"""Where a proxy of the comparison stands."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Place:
    folder: Path
    """Its own."""
    port: int
    broker: int
    """The broker's port."""

    def write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

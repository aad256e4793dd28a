"""The ports and the folder of a proxy in the comparison."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Place:
    folder: Path
    """The proxy's own folder."""
    port: int
    broker: int
    """The broker's port."""

    def write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

"""The config file: its model, how it is read, and what is questionable about one that is valid."""

from proxy.config.load import ConfigFaults, glean, gleaned_status_address, load, load_mapping, locate
from proxy.config.model import Config

__all__ = ["Config", "ConfigFaults", "glean", "gleaned_status_address", "load", "load_mapping", "locate"]

"""The config file: its model, how it is read, and its reference."""

from pulsar_ingress_proxy.config.load import ConfigFaults, glean, gleaned_status_address, load, load_mapping, locate
from pulsar_ingress_proxy.config.model import Config

__all__ = ["Config", "ConfigFaults", "glean", "gleaned_status_address", "load", "load_mapping", "locate"]

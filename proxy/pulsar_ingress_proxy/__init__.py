"""A sidecar that puts Pulsar lookups and redirects on addresses that clients can reach."""

__version__ = "0.1.0"

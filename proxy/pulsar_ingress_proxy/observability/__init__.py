"""Metrics, the event log, spans and the log: what is recorded of requests, and how."""

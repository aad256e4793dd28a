"""Grafana dashboards and Prometheus rules, written by `python -m dashboards` from the catalogue of metrics."""

"""The sidecar's lifecycle: start, serve, reload, hold, drain."""

"""The sidecar's life: start, serve, reload, hold, drain."""

"""The console: the status page and its API, for operators."""

"""The rules as pure functions over a snapshot: listeners, brokers, redirects and answers."""

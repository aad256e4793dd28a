"""The Pulsar wire protocol side: frames, the few commands that matter, and a session for each client."""

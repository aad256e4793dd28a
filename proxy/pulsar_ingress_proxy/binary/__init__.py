"""The Pulsar wire protocol: frames, the commands that matter, and a session for each client."""

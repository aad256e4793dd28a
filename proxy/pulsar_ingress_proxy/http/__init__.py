"""HTTP: client connections, request handling, connections to brokers."""

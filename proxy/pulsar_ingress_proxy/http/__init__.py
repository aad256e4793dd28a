"""HTTP: connections of clients, the life of a request, connections to brokers."""

"""What both protocols share: the server context, sockets, the pool of brokers, TLS, errors."""

"""What both protocols share: the server context, sockets, overload, the pool of brokers, TLS, errors."""

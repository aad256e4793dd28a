"""Discovery of ingresses and brokers, from Kubernetes and from the brokers' admin API."""

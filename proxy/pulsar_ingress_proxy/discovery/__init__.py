"""What is learned from Kubernetes and from the brokers' admin API."""

"""From Kubernetes objects to ingresses and broker addresses. Pure: no I/O here."""

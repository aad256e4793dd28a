"""What dashboards are known by, and link to each other by."""

OVERVIEW = "pulsar-ingress-overview"
SIDECAR = "pulsar-ingress-sidecar"
PIPELINE = "pulsar-ingress-pipeline"

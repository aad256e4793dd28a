"""UIDs of the dashboards, which links use."""

OVERVIEW = "pulsar-ingress-overview"
SIDECAR = "pulsar-ingress-sidecar"
PIPELINE = "pulsar-ingress-pipeline"

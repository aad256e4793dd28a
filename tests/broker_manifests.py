"""The manifests of brokers as most charts install them: a StatefulSet and its headless Service."""

_BROKERS = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: pulsar-broker, namespace: pulsar}
spec:
  replicas: REPLICAS
  serviceName: pulsar-broker
  selector: {matchLabels: {component: broker}}
  template:
    metadata: {labels: {component: broker}}
    spec:
      containers:
        - name: broker
          ports: [{name: http, containerPort: 8080}, {name: pulsar, containerPort: 6650}]
---
apiVersion: v1
kind: Service
metadata: {name: pulsar-broker, namespace: pulsar}
spec:
  {clusterIP: None, selector: {component: broker}, ports: [{name: http, port: 8080}, {name: tcp-pulsar, port: 6650}]}
"""


def brokers(replicas: int) -> str:
    """So many brokers, from pulsar-broker-0 on."""
    return _BROKERS.replace("REPLICAS", str(replicas))

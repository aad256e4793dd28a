// Whose definitions of kinds the tests apply. Nothing is built: `go mod download` writes go.sum.
module crds

go 1.26.0

require (
	github.com/envoyproxy/gateway v1.9.1
	github.com/kubeflow/spark-operator/v2 v2.5.2
	github.com/prometheus-operator/prometheus-operator v0.94.1
	github.com/traefik/traefik/v3 v3.7.13
	istio.io/api v1.31.1
	sigs.k8s.io/gateway-api v1.6.3
)

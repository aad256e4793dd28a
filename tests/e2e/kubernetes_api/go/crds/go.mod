// Whose definitions of kinds the tests apply. Nothing is built: `go mod download` writes go.sum.
module crds

go 1.26.0

require (
	istio.io/api v1.31.1
	sigs.k8s.io/gateway-api v1.6.3
)

{{/* Checks of routes: between its values, against the address book, and against the cluster. */}}

{{- define "pip.faults.routes" -}}
{{- $faults := list -}}
{{- $own := .Values.routes -}}
{{- $routes := include "pip.routes" . | fromYaml -}}
{{- $config := .Values.config -}}
{{- $places := regexFindAll "\\{[^}]*\\}" $own.hostTemplate -1 -}}
{{- $template := printf "routes.hostTemplate: %s" $own.hostTemplate -}}
{{- if and $own.create (ne .Values.mode "sidecar") -}}
{{- $faults = append $faults (printf "routes.create: is for mode sidecar: in mode gateway, point your own routes to Service %s" (include "pip.fullname" .)) -}}
{{- end -}}
{{- if and $own.create (not $own.host) (or $routes.through (not $routes.hosts)) -}}
{{- $faults = append $faults "routes.host: is missing: say which host is in clients' service URL, e.g. pulsar.example.com" -}}
{{- end -}}
{{- if not (has "{n}" $places) -}}
{{- $faults = append $faults (printf "%s: has no {n}, so all brokers would have one address: e.g. broker-{n}.{host}" $template) -}}
{{- else if not (regexMatch "^[a-z0-9-]*\\{n\\}[a-z0-9-]*\\.[^{}]*(\\{host\\})?$" $own.hostTemplate) -}}
{{- $faults = append $faults (printf "%s: should be one label with {n} and a domain, which may be {host}, so that one wildcard covers all brokers: e.g. broker-{n}.{host}" $template) -}}
{{- end -}}
{{- if and $own.host $routes.webHost -}}
{{- if not (contains "{n}" $routes.broker) -}}
{{- $faults = append $faults (printf "routes.brokerTemplate: %s: say how the brokers' pods are named, e.g. pulsar-broker-{n}.pulsar-broker.pulsar.svc.cluster.local" ($routes.broker | default (printf "cannot be derived from %s" $routes.webHost))) -}}
{{- else if and $own.create $routes.direct (not (regexMatch "^[^.]+\\.[^.]+\\.[^.]+\\.svc\\b" $routes.broker)) -}}
{{- $faults = append $faults (printf "routes.brokerTemplate: %s: should be pod.service.namespace.svc.domain, as each broker gets a Service in that namespace" $routes.broker) -}}
{{- end -}}
{{- end -}}
{{- if $own.create -}}
{{- if and $routes.direct $own.host (lt (int $own.brokers) 1) -}}
{{- $faults = append $faults "routes.brokers: is 0: say how many brokers there are, as each has its own route for pulsar+ssl://; or set routes.binary.throughSidecar, or routes.binary.enabled to false" -}}
{{- end -}}
{{- if and $routes.direct (not $own.host) -}}
{{- $faults = append $faults "routes.host: is missing: the brokers' hosts of routes.hostTemplate follow from it; or set routes.binary.enabled to false" -}}
{{- end -}}
{{- if and $routes.through (ne $routes.listener ($config.internalListenerName | default "internal")) (not $config.advertisedListeners) -}}
{{- $faults = append $faults (printf "routes.listener: %s: with throughSidecar, write the brokers' addresses on it into config.advertisedListeners, or leave it empty" $routes.listener) -}}
{{- end -}}
{{- if and $routes.through (eq (include "pip.sidecarPort" (dict "root" . "protocol" "pulsar")) "0") -}}
{{- $faults = append $faults "config.bindAddresses: has no pulsar:// socket, which routes.binary.throughSidecar leads to: leave bindAddresses out, or add e.g. internal:pulsar://127.0.0.1:16650" -}}
{{- end -}}
{{- if and $own.failOpen (eq .Values.gateway.type "gateway-api") -}}
{{- $faults = append $faults "routes.failOpen: is not for gateway.type gateway-api, as Istio's routes of the Gateway API cannot lead elsewhere when a connection fails; there is routes.bypass" -}}
{{- end -}}
{{- if and $own.failOpen .Values.config.shadow -}}
{{- $faults = append $faults "routes.failOpen: names the listener for the brokers, and with config.shadow the sidecar would pass that name on: set one of them to false" -}}
{{- end -}}
{{- if and $own.failOpen (hasPrefix "istio" .Values.gateway.type) (eq $routes.webScheme "https") (not .Values.gateway.istioCertificates) -}}
{{- $faults = append $faults "routes.failOpen: Istio would ask the brokers in plain HTTP, and config.brokers.webServiceUrl is https: for brokers in the mesh set gateway.istioCertificates" -}}
{{- end -}}
{{- if and (or $own.failOpen $own.bypass) $routes.through -}}
{{- $faults = append $faults "routes.failOpen, routes.bypass: lead HTTP past the sidecar, and with routes.binary.throughSidecar there are no HTTP routes" -}}
{{- end -}}
{{- if and (or $own.failOpen $own.bypass) (eq .Values.gateway.type "envoy-gateway") (eq $routes.webScheme "https") -}}
{{- $faults = append $faults "routes.failOpen, routes.bypass: Envoy Gateway would ask the brokers in plain HTTP, and config.brokers.webServiceUrl is https" -}}
{{- end -}}
{{- range $own.parentRefs -}}
{{- if not .name -}}
{{- $faults = append $faults "routes.parentRefs: each should have a name, and may have a namespace" -}}
{{- else if and (eq $.Values.gateway.type "gateway-api") (ne (.namespace | default $.Release.Namespace) $.Release.Namespace) -}}
{{- $faults = append $faults (printf "routes.parentRefs: %s/%s: install the release there (--namespace %s): Istio runs the Gateway's pods in its namespace, and they mount ConfigMaps of it" .namespace .name .namespace) -}}
{{- end -}}
{{- end -}}
{{- if and $own.parentRefs (eq .Values.gateway.type "traefik") -}}
{{- $faults = append $faults "routes.parentRefs: Traefik's routes have none: leave it empty" -}}
{{- end -}}
{{- end -}}
{{- toJson $faults -}}
{{- end }}

{{/* Addresses under the routes' hosts whose port no route opens. Others are the brokers' own, past the gateway. */}}
{{- define "pip.faults.addresses" -}}
{{- $faults := list -}}
{{- $own := .Values.routes -}}
{{- if $own.create -}}
{{- $hosts := (include "pip.routes" . | fromYaml).hosts -}}
{{- $pattern := "^ *([^:/ ]+):([a-z+]+)://([^:/ ]+)(?::([^/ ]+))? *$" -}}
{{- range (include "pip.config" . | fromYaml).advertisedListeners | default list -}}
{{- $listeners := .listeners | default "" -}}
{{- range splitList "," (kindIs "string" $listeners | ternary $listeners (toString $listeners)) -}}
{{- $address := regexReplaceAll "\\s" . "" -}}
{{- $host := regexReplaceAll $pattern $address "${3}" | lower -}}
{{- $routed := false -}}
{{- range $hosts -}}
{{- if or (eq . $host) (and (hasPrefix "*." .) (hasSuffix (trimPrefix "*" .) $host)) -}}{{- $routed = true -}}{{- end -}}
{{- end -}}
{{- if and $routed (regexMatch $pattern $address) -}}
{{- $scheme := regexReplaceAll $pattern $address "${2}" -}}
{{- $port := regexReplaceAll $pattern $address "${4}" | default (get (dict "https" "443" "http" "80" "pulsar" "6650" "pulsar+ssl" "6651") $scheme) -}}
{{- if eq $scheme "https" -}}
{{- if ne $port (toString (int $own.httpsPort)) -}}
{{- $faults = append $faults (printf "config.advertisedListeners: %s: no route opens that port: routes.httpsPort is %v" $address $own.httpsPort) -}}
{{- end -}}
{{- else if ne $scheme "pulsar+ssl" -}}
{{- $faults = append $faults (printf "config.advertisedListeners: %s: no route opens that port: the gateway's routes are for https and pulsar+ssl" $address) -}}
{{- else if not $own.binary.enabled -}}
{{- $faults = append $faults (printf "config.advertisedListeners: %s: no route opens that port: routes.binary.enabled is false" $address) -}}
{{- else if ne $port (toString (int $own.binary.port)) -}}
{{- $faults = append $faults (printf "config.advertisedListeners: %s: no route opens that port: routes.binary.port is %v, one for all brokers" $address $own.binary.port) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $faults -}}
{{- end }}

{{/* Another release beside the same gateway, and kinds that the cluster does not have. */}}
{{- define "pip.faults.cluster" -}}
{{- $faults := list -}}
{{- if eq .Values.mode "sidecar" -}}
{{- range (lookup "v1" "ConfigMap" .Release.Namespace "").items | default list -}}
{{- $annotations := .metadata.annotations | default dict -}}
{{- $release := get $annotations "meta.helm.sh/release-name" -}}
{{- if and (eq (get $annotations "pulsar-ingress-proxy/gateway") (include "pip.gatewayId" $)) (ne $release $.Release.Name) -}}
{{- $faults = append $faults (printf "gateway.name: release %s is beside this gateway already (%s), and a gateway has one sidecar: upgrade that release, or name another gateway" $release (include "pip.gatewayId" $)) -}}
{{- end -}}
{{- end -}}
{{- /* Without a cluster (helm template) Helm does not know its kinds. Every cluster has this one, and Helm's own list has not. */ -}}
{{- if .Capabilities.APIVersions.Has "apiregistration.k8s.io/v1" -}}
{{- range include "pip.neededKinds" . | fromJsonArray -}}
{{- if not ($.Capabilities.APIVersions.Has .kind) -}}
{{- $faults = append $faults (printf "gateway.type: %s: this cluster does not have %s: install %s first" $.Values.gateway.type .kind .of) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $faults -}}
{{- end }}

{{/* Custom kinds that the manifests use, and what brings them. */}}
{{- define "pip.neededKinds" -}}
{{- $type := .Values.gateway.type -}}
{{- $kinds := list -}}
{{- if eq $type "envoy-gateway" -}}
{{- $kinds = append $kinds (dict "kind" "gateway.envoyproxy.io/v1alpha1/EnvoyProxy" "of" "Envoy Gateway") -}}
{{- end -}}
{{- if .Values.routes.create -}}
{{- if has $type (list "istio" "istio-injection" "gateway-api") -}}
{{- $kinds = append $kinds (dict "kind" "networking.istio.io/v1/ServiceEntry" "of" "Istio") -}}
{{- end -}}
{{- if has $type (list "gateway-api" "envoy-gateway") -}}
{{- $kinds = append $kinds (dict "kind" "gateway.networking.k8s.io/v1/HTTPRoute" "of" "the Gateway API's CRDs") -}}
{{- if .Values.routes.binary.enabled -}}
{{- $kinds = append $kinds (dict "kind" "gateway.networking.k8s.io/v1/TLSRoute" "of" "the Gateway API's CRDs, 1.5 or newer,") -}}
{{- end -}}
{{- end -}}
{{- if eq $type "traefik" -}}
{{- $kinds = append $kinds (dict "kind" "traefik.io/v1alpha1/IngressRoute" "of" "Traefik") -}}
{{- end -}}
{{- end -}}
{{- toJson $kinds -}}
{{- end }}

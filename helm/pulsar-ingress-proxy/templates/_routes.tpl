{{/* What the routes and the config have in common, from routes and config.brokers. */}}

{{/* The names by which the routes go, as YAML. An empty `broker` means that it cannot be derived. */}}
{{- define "pip.routes" -}}
{{- $own := .Values.routes -}}
{{- $through := and $own.binary.enabled $own.binary.throughSidecar -}}
{{- $pattern := "^([a-z]+)://([^:/]+)(?::([0-9]+))?/?$" -}}
{{- $url := first ((.Values.config.brokers | default dict).webServiceUrl | default list) | default "" -}}
{{- $scheme := regexReplaceAll $pattern $url "${1}" -}}
{{- $broker := $own.brokerTemplate -}}
{{- if and (not $broker) (regexMatch $pattern $url) -}}
{{- $labels := concat (regexReplaceAll $pattern $url "${2}" | splitList ".") (list "" "" "") -}}
{{- if has (index $labels 2) (list "svc" "") -}}
{{- $domain := slice $labels 3 | compact | join "." | default "cluster.local" -}}
{{- $broker = printf "%s-{n}.%s.%s.svc.%s" (first $labels) (first $labels) (index $labels 1 | default .Release.Namespace) $domain -}}
{{- end -}}
{{- end -}}
{{- $labels := concat (splitList "." $broker) (list "" "") -}}
{{- $domain := slice $labels 2 | compact | join "." -}}
{{- $brokerHost := $own.hostTemplate | replace "{host}" $own.host -}}
{{- $hosts := list -}}
{{- if not $through -}}
{{- if $own.host -}}{{- $hosts = list $own.host (regexReplaceAll "^[^.]+" $brokerHost "*") -}}{{- end -}}
{{- $hosts = concat $hosts $own.hosts -}}
{{- range .Values.config.ingresses | default list -}}{{- $hosts = concat $hosts (.hosts | default list) -}}{{- end -}}
{{- end -}}
{{- dict
  "through" $through
  "direct" (and $own.binary.enabled (not $through))
  "listener" ($own.listener | default ($through | ternary "internal" "external"))
  "broker" $broker
  "pod" (first $labels)
  "namespace" (index $labels 2)
  "domain" $domain
  "webPort" (regexReplaceAll $pattern $url "${3}" | default (eq $scheme "https" | ternary "443" "80") | int)
  "webHost" (regexReplaceAll $pattern $url "${2}")
  "webScheme" $scheme
  "brokerHost" $brokerHost
  "hosts" (uniq $hosts)
  "secret" ($own.tlsSecret | default (replace "." "-" $own.host)) | toYaml -}}
{{- end }}

{{/* The brokers of binary routes as a JSON list: number, host of clients, pod, own name, and name of the Service. */}}
{{- define "pip.brokers" -}}
{{- $routes := include "pip.routes" . | fromYaml -}}
{{- $prefix := include "pip.fullname" . -}}
{{- if ne $routes.namespace .Release.Namespace -}}{{- $prefix = printf "%s-%s" $prefix .Release.Namespace -}}{{- end -}}
{{- $brokers := list -}}
{{- if $routes.direct -}}
{{- range $n := until (int .Values.routes.brokers) -}}
{{- $brokers = append $brokers (dict
  "n" $n
  "host" ($routes.brokerHost | replace "{n}" (toString $n))
  "pod" ($routes.pod | replace "{n}" (toString $n))
  "address" ($routes.broker | replace "{n}" (toString $n))
  "service" (printf "%s-broker-%d" ($prefix | trunc 50 | trimSuffix "-") $n)) -}}
{{- end -}}
{{- end -}}
{{- toJson $brokers -}}
{{- end }}

{{/* The keys of config that routes imply, as YAML. `config` overrides each. */}}
{{- define "pip.impliedConfig" -}}
{{- $own := .Values.routes -}}
{{- $routes := include "pip.routes" . | fromYaml -}}
{{- $internal := .Values.config.internalListenerName | default "internal" -}}
{{- $implied := dict -}}
{{- if $own.host -}}
{{- $brokers := .Values.config.brokers | default dict -}}
{{- $tls := .Values.gateway.istioCertificates -}}
{{- $binary := $tls | ternary "pulsar+ssl" "pulsar" -}}
{{- if and $tls $routes.namespace -}}
{{- $account := regexReplaceAll "-\\{[a-z]+\\}$" $routes.pod "" -}}
{{- $_ := set $implied "brokers" (dict "tls" (dict
  "ca" "/etc/istio-certs/root-cert.pem"
  "certificate" "/etc/istio-certs/cert-chain.pem"
  "key" "/etc/istio-certs/key.pem"
  "peerIdentity" (printf "spiffe://cluster.local/ns/%s/sa/%s" $routes.namespace $account))) -}}
{{- end -}}
{{- $addresses := list (printf "%s:%s://%s:%v" $internal $routes.webScheme $routes.broker $routes.webPort) -}}
{{- if $routes.through -}}
{{- $addresses = append $addresses (printf "%s:%s://%s:%v" $internal $binary $routes.broker $own.binary.brokerPort) -}}
{{- $_ := set $implied "brokers" (merge (dict "brokerServiceUrl" (list (printf "%s://%s:%v" $binary $routes.webHost $own.binary.brokerPort))) ($implied.brokers | default dict)) -}}
{{- $socket := printf "%s:pulsar://127.0.0.1:16650" $routes.listener -}}
{{- if eq .Values.gateway.type "traefik" -}}
{{- $socket = printf "%s:pulsar+ssl://127.0.0.1:16651" $routes.listener -}}
{{- $_ := set $implied "tls" (dict "certificate" "/etc/pulsar-ingress-tls/tls.crt" "key" "/etc/pulsar-ingress-tls/tls.key") -}}
{{- end -}}
{{- $_ := set $implied "bindAddresses" (list "http://127.0.0.1:18080" $socket) -}}
{{- else -}}
{{- $port := eq (int $own.httpsPort) 443 | ternary "" (printf ":%v" $own.httpsPort) -}}
{{- $addresses = append $addresses (printf "%s:https://%s%s" $routes.listener $routes.brokerHost $port) -}}
{{- if $own.binary.enabled -}}
{{- $addresses = append $addresses (printf "%s:pulsar+ssl://%s:%v" $routes.listener $routes.brokerHost $own.binary.port) -}}
{{- end -}}
{{- end -}}
{{- if $routes.broker -}}
{{- $_ := set $implied "advertisedListeners" (list (dict "broker" $routes.broker "listeners" (join ", " $addresses))) -}}
{{- end -}}
{{- if include "pip.discovery" . -}}
{{- $gateways := list -}}
{{- range include "pip.parentRefs" . | fromJsonArray -}}
{{- $gateways = append $gateways (printf "gateway/%s/%s" (.namespace | default $.Release.Namespace) .name) -}}
{{- end -}}
{{- $_ := set $implied "kubernetes" (dict
  "namespaces" (list .Release.Namespace $routes.namespace | compact | uniq)
  "gateways" (uniq $gateways)
  "allowedHostSuffixes" (list $own.host)) -}}
{{- $_ := set $implied "miss" "reject" -}}
{{- else -}}
{{- $ingress := dict
  "name" "public"
  "hosts" ($routes.through | ternary (list $own.host) (slice $routes.hosts 0 2))
  "listener" $routes.listener
  "allowedListeners" (list $routes.listener)
  "expose" (list "lookup" "client") -}}
{{- if $routes.through -}}{{- $_ := set $ingress "throughSidecar" true -}}{{- end -}}
{{- $_ := set $implied "ingresses" (list $ingress) -}}
{{- end -}}
{{- end -}}
{{- toYaml $implied -}}
{{- end }}

{{/* The Gateways that routes attach to, as a JSON list: the given ones, or the chart's own. */}}
{{- define "pip.parentRefs" -}}
{{- .Values.routes.parentRefs | default (list (dict "name" (include "pip.fullname" .))) | toJson -}}
{{- end }}

{{- define "pip.sidecarHost" -}}pulsar-ingress-proxy.sidecar.internal{{- end }}

{{/* Port of the sidecar's first socket for `protocol`: http or pulsar. */}}
{{- define "pip.sidecarPort" -}}
{{- $found := list -}}
{{- range include "pip.ports" .root | fromJsonArray -}}
{{- if hasPrefix $.protocol .scheme -}}{{- $found = append $found .port -}}{{- end -}}
{{- end -}}
{{- first $found | default 0 | int -}}
{{- end }}

{{/* Prefixes of paths that lead to the sidecar, as a JSON list: those of which some ingress exposes something. */}}
{{- define "pip.pathPrefixes" -}}
{{- $exposed := list -}}
{{- range (include "pip.config" . | fromYaml).ingresses | default (list (dict "expose" (list "lookup" "client"))) -}}
{{- $exposed = concat $exposed (.expose | default (list "everything")) -}}
{{- end -}}
{{- $prefixes := dict "lookup" "/lookup/" "client" "/admin/" "admin" "/admin/" "functions" "/admin/" "topics" "/topics/" "ws" "/ws/" -}}
{{- $found := list -}}
{{- range $exposed -}}{{- $found = append $found (get $prefixes . | default "/") -}}{{- end -}}
{{- has "/" $found | ternary (list "/") (uniq $found | sortAlpha) | toJson -}}
{{- end }}

{{/*
Whether the routes themselves let only the GETs through that clients need: where `expose` of an ingress is not there to
refuse the rest. That is past the sidecar, in shadow mode, and for hosts that belong to no ingress.
*/}}
{{- define "pip.onlyClientPaths" -}}
{{- $own := .Values.routes -}}
{{- $open := or .Values.config.shadow false -}}
{{- $ingresses := (include "pip.config" . | fromYaml).ingresses -}}
{{- $covered := list -}}
{{- range $ingresses -}}
{{- $covered = concat $covered (.hosts | default list) -}}
{{- if .shadow -}}{{- $open = true -}}{{- end -}}
{{- end -}}
{{- range (include "pip.routes" . | fromYaml).hosts -}}
{{- if and $ingresses (not (has . $covered)) -}}{{- $open = true -}}{{- end -}}
{{- end -}}
{{- $needed := eq (include "pip.pathPrefixes" .) (list "/admin/" "/lookup/" | toJson) -}}
{{- $past := and $own.failOpen (not (include "pip.istioFailOpen" .)) -}}
{{- if or $own.bypass $past (and $needed $open) }}true{{ end -}}
{{- end }}

{{/* Whether Istio's routes lead past a sidecar that accepts no connection; then they have a route of their own for that. */}}
{{- define "pip.istioFailOpen" -}}
{{- $own := .Values.routes -}}
{{- if and $own.create $own.failOpen (not $own.bypass) (has .Values.gateway.type (list "istio" "istio-injection")) }}true{{ end -}}
{{- end }}

{{/* The GETs that clients need, as regular expressions in a JSON list, for routes that lead past the sidecar. */}}
{{- define "pip.clientPaths" -}}
{{- list
  "/admin/v2/(persistent|non-persistent)/[^/]+/[^/]+/[^/]+/partitions"
  "/admin/v2/namespaces/[^/]+/[^/]+/topics"
  "/admin/v2/schemas/[^/]+/[^/]+/[^/]+/schema(/[^/]+)?" | toJson -}}
{{- end }}

{{/* By these, discovery finds the ingress. */}}
{{- define "pip.routeAnnotations" -}}
{{- if include "pip.discovery" . -}}
{{- $listener := (include "pip.routes" . | fromYaml).listener -}}
pulsar-ingress-proxy/listener: {{ $listener }}
pulsar-ingress-proxy/allowed-listeners: {{ $listener }}
pulsar-ingress-proxy/expose: lookup,client
{{- end -}}
{{- end }}

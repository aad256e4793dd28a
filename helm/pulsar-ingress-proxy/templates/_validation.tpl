{{/* Checks that the schema cannot express, between values. All faults are reported at once. */}}

{{- define "pip.validate" -}}
{{- $faults := list -}}
{{- range list "sockets" "files" "gateway" "discovery" "pods" "routes" "addresses" "cluster" -}}
{{- $faults = concat $faults (include (printf "pip.faults.%s" .) $ | fromJsonArray) -}}
{{- end -}}
{{- if $faults -}}
{{- fail (printf "\n%s\n" (join "\n" $faults)) -}}
{{- end -}}
{{- end }}

{{- define "pip.faults.sockets" -}}
{{- $faults := list -}}
{{- $config := include "pip.config" . | fromYaml -}}
{{- $sidecar := eq .Values.mode "sidecar" -}}
{{- $sockets := include "pip.sockets" . | fromJsonArray -}}
{{- $web := include "pip.webSockets" . | fromJsonArray -}}
{{- if ne (include "pip.bindAddresses" . | splitList "," | compact | len) (len $sockets) -}}
{{- $faults = append $faults (printf "config.bindAddresses: %s: each should be [listener:]scheme://host:port, with http, https, pulsar or pulsar+ssl" (include "pip.bindAddresses" .)) -}}
{{- end -}}
{{- $ports := dict -}}
{{- range $sockets -}}
{{- $name := printf "config.bindAddresses: %s" .text -}}
{{- $loopback := regexMatch "^(127\\.|\\[::1\\]$|localhost$)" .host -}}
{{- if or (lt (int .port) 1) (gt (int .port) 65535) -}}
{{- $faults = append $faults (printf "%s: the port should be between 1 and 65535" $name) -}}
{{- end -}}
{{- if and $sidecar (not $loopback) (not $.Values.gateway.allowPodNetwork) -}}
{{- $faults = append $faults (printf "%s: beside a gateway only the gateway should reach it: bind 127.0.0.1, or set gateway.allowPodNetwork" $name) -}}
{{- end -}}
{{- if and (not $sidecar) $loopback (hasPrefix "http" .scheme) -}}
{{- $faults = append $faults (printf "%s: in mode gateway nobody can reach loopback: bind 0.0.0.0" $name) -}}
{{- end -}}
{{- $faults = concat $faults (include "pip.faults.port" (dict "root" $ "ports" $ports "host" .host "port" .port "name" $name) | fromJsonArray) -}}
{{- end -}}
{{- range $key := list "metrics" "console" -}}
{{- $address := get (get $config $key) "address" -}}
{{- $name := printf "config.%s.address: %v" $key $address -}}
{{- if and (eq $key "console") (not $address) -}}
{{- /* no console */ -}}
{{- else if regexMatch "^.+:[0-9]+$" (toString $address) -}}
{{- $port := regexReplaceAll "^.*:" $address "" | int -}}
{{- $host := regexReplaceAll ":[0-9]+$" $address "" -}}
{{- $faults = concat $faults (include "pip.faults.port" (dict "root" $ "ports" $ports "host" $host "port" $port "name" $name) | fromJsonArray) -}}
{{- else -}}
{{- $faults = append $faults (printf "%s: should be host:port" $name) -}}
{{- end -}}
{{- end -}}
{{- if regexMatch "^(127\\.|\\[::1\\]|localhost)" (toString $config.metrics.address) -}}
{{- if not $sidecar -}}
{{- $faults = append $faults (printf "config.metrics.address: %s: the kubelet's probes cannot reach loopback" $config.metrics.address) -}}
{{- else if .Values.podMonitor.enabled -}}
{{- $faults = append $faults (printf "config.metrics.address: %s: Prometheus cannot reach loopback: bind 0.0.0.0, or leave podMonitor out" $config.metrics.address) -}}
{{- end -}}
{{- end -}}
{{- if and (lt (len $web) (len (include "pip.ports" . | fromJsonArray))) (not ($config.brokers | default dict).brokerServiceUrl) -}}
{{- $faults = append $faults "config.brokers.brokerServiceUrl: is missing: say where the binary protocol goes, e.g. [pulsar://pulsar-broker.pulsar.svc:6650]" -}}
{{- end -}}
{{- if and $web (not ($config.brokers | default dict).webServiceUrl) -}}
{{- $faults = append $faults "config.brokers.webServiceUrl: is missing: say where HTTP goes, e.g. [http://pulsar-broker.pulsar.svc:8080]" -}}
{{- end -}}
{{- $tls := $config.tls | default dict -}}
{{- range $web -}}
{{- if and (eq .scheme "https") (not (and $tls.certificate $tls.key)) -}}
{{- $faults = append $faults (printf "config.bindAddresses: %s: needs config.tls.certificate and config.tls.key: files of a Secret in secretMounts" .text) -}}
{{- end -}}
{{- end -}}
{{- $set := dict "PULSAR_INGRESS_METRICS__ADDRESS" "metrics.address" -}}
{{- if $sidecar -}}{{- $_ := set $set "PULSAR_INGRESS_BIND_ADDRESSES" "bindAddresses" -}}{{- end -}}
{{- range .Values.extraEnv -}}
{{- with get $set (toString .name) -}}
{{- $faults = append $faults (printf "extraEnv: the chart has set that variable itself: write config.%s" .) -}}
{{- end -}}
{{- end -}}
{{- toJson $faults -}}
{{- end }}

{{/* Fails if a port is taken by another socket or by the gateway. Adds it to `ports`. */}}
{{- define "pip.faults.port" -}}
{{- $faults := list -}}
{{- $key := toString .port -}}
{{- $holders := get .ports $key | default list -}}
{{- range $holders -}}
{{- if or (eq .host $.host) (has .host (list "0.0.0.0" "[::]")) (has $.host (list "0.0.0.0" "[::]")) -}}
{{- $faults = append $faults (printf "%s: %s has that port already" $.name .name) -}}
{{- end -}}
{{- end -}}
{{- $_ := set .ports $key (append $holders (pick . "host" "name")) -}}
{{- if eq .root.Values.mode "sidecar" -}}
{{- $istio := list "15000" "15001" "15004" "15006" "15008" "15020" "15021" "15053" "15090" -}}
{{- $taken := dict "istio" $istio "istio-injection" $istio "gateway-api" $istio "envoy-gateway" (list "19000" "19001" "19002" "19003") "traefik" (list "8000" "8080" "8443" "9100") -}}
{{- if has $key (get $taken .root.Values.gateway.type) -}}
{{- $faults = append $faults (printf "%s: that port is the gateway's own (%s)" .name .root.Values.gateway.type) -}}
{{- end -}}
{{- end -}}
{{- toJson $faults -}}
{{- end }}

{{/* Files in config that are in no volume, and folders that are not writable. */}}
{{- define "pip.faults.files" -}}
{{- $faults := list -}}
{{- $config := include "pip.config" . | fromYaml -}}
{{- $mounts := list "/etc/ssl" "/usr" -}}
{{- $writable := list "/var/lib/pulsar-ingress-proxy" -}}
{{- if include "pip.discovery" . -}}{{- $mounts = append $mounts "/var/run/secrets/kubernetes.io/serviceaccount" -}}{{- end -}}
{{- if .Values.gateway.istioCertificates -}}{{- $mounts = append $mounts "/etc/istio-certs" -}}{{- end -}}
{{- range concat (include "pip.allSecretMounts" . | fromJsonArray) .Values.extraVolumeMounts -}}{{- $mounts = append $mounts (toString .mountPath) -}}{{- end -}}
{{- range .Values.extraVolumeMounts -}}{{- $writable = append $writable (toString .mountPath) -}}{{- end -}}
{{- $tls := $config.tls | default dict -}}
{{- $brokers := $config.brokers | default dict -}}
{{- $brokerTls := $brokers.tls | default dict -}}
{{- range $key, $path := dict
  "tls.certificate" $tls.certificate "tls.key" $tls.key "tls.clientCa" $tls.clientCa
  "brokers.tls.ca" $brokerTls.ca "brokers.tls.certificate" $brokerTls.certificate "brokers.tls.key" $brokerTls.key
  "brokers.adminTokenFile" $brokers.adminTokenFile -}}
{{- if and $path (hasPrefix "/etc/istio-certs/" $path) (not $.Values.gateway.istioCertificates) (not (has "/etc/istio-certs" $mounts)) -}}
{{- $faults = append $faults (printf "config.%s: %s: set gateway.istioCertificates, so that Istio's agent writes it" $key $path) -}}
{{- else if and $path (not (include "pip.isUnder" (dict "path" $path "folders" $mounts))) -}}
{{- $faults = append $faults (printf "config.%s: %s: no volume has that file: name its Secret in secretMounts, or an extraVolumeMounts" $key $path) -}}
{{- end -}}
{{- end -}}
{{- range $key, $path := dict "events.path" $config.events.path "kubernetes.statePath" $config.kubernetes.statePath -}}
{{- if and $path (not (include "pip.isUnder" (dict "path" $path "folders" $writable))) -}}
{{- $faults = append $faults (printf "config.%s: %s: the root is read-only: choose a folder under /var/lib/pulsar-ingress-proxy, or of an extraVolumeMounts" $key $path) -}}
{{- end -}}
{{- end -}}
{{- toJson $faults -}}
{{- end }}

{{- define "pip.isUnder" -}}
{{- range .folders -}}
{{- if hasPrefix (printf "%s/" (trimSuffix "/" .)) (printf "%s/" $.path) }}yes{{ end -}}
{{- end -}}
{{- end }}

{{- define "pip.faults.gateway" -}}
{{- $faults := list -}}
{{- $gateway := .Values.gateway -}}
{{- if eq .Values.mode "sidecar" -}}
{{- if and $gateway.namespace (ne $gateway.namespace .Release.Namespace) -}}
{{- $faults = append $faults (printf "gateway.namespace: %s: install the release there (--namespace %s): pods mount ConfigMaps of their own namespace, and this is %s" $gateway.namespace $gateway.namespace .Release.Namespace) -}}
{{- end -}}
{{- if and (eq $gateway.type "istio-injection") (contains "{{" (include "pip.injectionTemplate" .)) -}}
{{- $faults = append $faults "gateway.type: istio-injection: istiod would read the {{ in extraEnv, extraVolumes or podAnnotations as a template of its own" -}}
{{- end -}}
{{- end -}}
{{- if and $gateway.istioCertificates (or (ne .Values.mode "sidecar") (not (has $gateway.type (list "istio" "istio-injection" "gateway-api")))) -}}
{{- $faults = append $faults "gateway.istioCertificates: is for mode sidecar beside Istio: gateway.type istio, istio-injection or gateway-api" -}}
{{- end -}}
{{- toJson $faults -}}
{{- end }}

{{- define "pip.faults.discovery" -}}
{{- $faults := list -}}
{{- if and (eq .Values.mode "sidecar") (include "pip.discovery" .) -}}
{{- if not (include "pip.config" . | fromYaml).kubernetes.namespaces -}}
{{- $faults = append $faults (printf "config.kubernetes.namespaces: is empty, which means %s only: name the namespaces of the brokers and of the ingresses, e.g. [%s, pulsar]" .Release.Namespace .Release.Namespace) -}}
{{- end -}}
{{- if and .Values.rbac.create (eq .Values.gateway.type "envoy-gateway") (not .Values.gateway.serviceAccount) -}}
{{- $faults = append $faults "gateway.serviceAccount: is missing: Envoy Gateway makes up a name unless the EnvoyProxy says one; any will do, e.g. envoy-pulsar" -}}
{{- end -}}
{{- end -}}
{{- toJson $faults -}}
{{- end }}

{{- define "pip.faults.pods" -}}
{{- $faults := list -}}
{{- if eq .Values.mode "gateway" -}}
{{- $least := add .Values.preStopSeconds (include "pip.drainSeconds" . | int) 5 -}}
{{- if lt (include "pip.gracePeriod" . | int) (int $least) -}}
{{- $faults = append $faults (printf "terminationGracePeriodSeconds: %v: is too short: preStopSeconds (%v), config.drainSeconds (%s) and 5 to write the event log out make %v" .Values.terminationGracePeriodSeconds .Values.preStopSeconds (include "pip.drainSeconds" .) $least) -}}
{{- end -}}
{{- with .Values.autoscaling -}}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) -}}
{{- $faults = append $faults (printf "autoscaling.minReplicas: %v: is more than maxReplicas, %v" .minReplicas .maxReplicas) -}}
{{- end -}}
{{- if and .enabled (not (($.Values.resources | default dict).requests | default dict).cpu) -}}
{{- $faults = append $faults "autoscaling.enabled: needs resources.requests.cpu, of which the target is a percentage" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $faults -}}
{{- end }}

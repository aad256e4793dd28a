{{/* The container in the format of each gateway. */}}

{{/* Values of the Istio gateway chart. */}}
{{- define "pip.fragment.istio" -}}
podAnnotations:
  {{- include "pip.podAnnotations" . | nindent 2 }}
{{- if .Values.gateway.istioCertificates }}
# Istio's agent writes the workload's certificates here, which brokers behind STRICT mTLS ask for.
env:
  OUTPUT_CERTS: /etc/istio-certs
volumeMounts:
  - {name: istio-certs, mountPath: /etc/istio-certs}
{{- end }}
initContainers:
  - {{ include "pip.nativeSidecar" . | nindent 4 | trim }}
volumes:
  {{- include "pip.volumes" . | nindent 2 }}
{{- if and .Values.routes.create .Values.routes.binary.enabled }}
service:
  ports:
    {{- include "pip.servicePorts" . | nindent 4 }}
{{- end }}
{{- end }}

{{/* Helm replaces lists in values. So these are all ports of the gateway's Service as it is, or of its chart, and ours. */}}
{{- define "pip.servicePorts" -}}
{{- $ports := ((lookup "v1" "Service" .Release.Namespace (include "pip.gateway" . | fromYaml).name).spec | default dict).ports -}}
{{- $ports = $ports | default (list
  (dict "name" "status-port" "port" 15021 "targetPort" 15021 "protocol" "TCP")
  (dict "name" "http2" "port" 80 "targetPort" 80 "protocol" "TCP")
  (dict "name" "https" "port" 443 "targetPort" 443 "protocol" "TCP")) -}}
{{- $numbers := list -}}
{{- range $ports -}}{{- $numbers = append $numbers (int .port) -}}{{- end -}}
{{- $port := int .Values.routes.binary.port -}}
{{- if not (has $port $numbers) -}}
{{- $ports = append $ports (dict "name" "tls-pulsar" "port" $port "targetPort" $port "protocol" "TCP") -}}
{{- end -}}
{{- toYaml $ports -}}
{{- end }}

{{/* The container as an overlay of a gateway's pods: a template of istiod, or part of a Gateway's parameters. */}}
{{- define "pip.injectionTemplate" -}}
metadata:
  annotations:
    {{- include "pip.podAnnotations" . | nindent 4 }}
spec:
  initContainers:
    - {{ include "pip.nativeSidecar" . | nindent 6 | trim }}
  {{- if .Values.gateway.istioCertificates }}
  containers:
    - name: istio-proxy
      env:
        - {name: OUTPUT_CERTS, value: /etc/istio-certs}
      volumeMounts:
        - {name: istio-certs, mountPath: /etc/istio-certs}
  {{- end }}
  volumes:
    {{- include "pip.volumes" . | nindent 4 }}
{{- end }}

{{/* Values of the istiod chart. */}}
{{- define "pip.fragment.istio-injection" -}}
sidecarInjectorWebhook:
  templates:
    {{ include "pip.fullname" . }}: |
      {{- include "pip.injectionTemplate" . | trim | nindent 6 }}
{{- end }}

{{/* A patch of the Deployment that Istio makes for a Gateway. Istio opens the ports of its listeners by itself. */}}
{{- define "pip.fragment.gateway-api" -}}
spec:
  template:
    {{- include "pip.injectionTemplate" . | trim | nindent 4 }}
{{- end }}

{{/* The spec of an EnvoyProxy of Envoy Gateway, which opens the ports of listeners by itself. */}}
{{- define "pip.envoyProxy" -}}
spec:
  provider:
    type: Kubernetes
    kubernetes:
      {{- with .Values.gateway.serviceAccount }}
      envoyServiceAccount:
        name: {{ . }}
      {{- end }}
      envoyDeployment:
        patch:
          type: StrategicMerge
          value:
            spec:
              template:
                metadata:
                  annotations:
                    {{- include "pip.podAnnotations" . | nindent 20 }}
                spec:
                  # Envoy Gateway takes no Backend at 127.0.0.1, but a name; this is what it means in these pods.
                  hostAliases:
                    - ip: 127.0.0.1
                      hostnames: [pulsar-ingress-proxy.sidecar.internal]
                  initContainers:
                    - {{ include "pip.nativeSidecar" . | nindent 22 | trim }}
                  volumes:
                    {{- include "pip.volumes" . | nindent 20 }}
{{- end }}

{{/* Values of the Traefik chart. An ordinary container gets SIGTERM together with Traefik, so it waits a while first. */}}
{{- define "pip.fragment.traefik" -}}
deployment:
  {{- if gt (include "pip.gracePeriod" . | int) 60 }}
  terminationGracePeriodSeconds: {{ include "pip.gracePeriod" . }}
  {{- end }}
  podAnnotations:
    {{- include "pip.podAnnotations" . | nindent 4 }}
  additionalContainers:
    - {{ include "pip.sidecar" . | nindent 6 | trim }}
      {{- with include "pip.preStop" . }}
      {{- . | nindent 6 }}
      {{- end }}
  additionalVolumes:
    {{- include "pip.volumes" . | nindent 4 }}
{{- if .Values.routes.create }}
{{ include "pip.traefikRoutes" . }}
{{- end }}
{{- end }}

{{/*
The port of the binary protocol, and the services that routes name as `…@file`. No object of Kubernetes can name 127.0.0.1:
EndpointSlices must not have loopback addresses, and Traefik ignores Services of type ExternalName by default.
*/}}
{{- define "pip.traefikRoutes" -}}
{{- $routes := include "pip.routes" . | fromYaml -}}
{{- if .Values.routes.binary.enabled -}}
ports:
  pulsar:
    port: {{ .Values.routes.binary.port }}
    exposedPort: {{ .Values.routes.binary.port }}
    protocol: TCP
    expose: {default: true}
{{ end -}}
providers:
  file:
    enabled: true
    content:
      {{- if $routes.through }}
      tcp:
        routers:
          pulsar:
            entryPoints: [pulsar]
            rule: HostSNI(`{{ .Values.routes.host }}`)
            service: pulsar-sidecar
            tls: {passthrough: true}   # the sidecar has the certificate
        services:
          pulsar-sidecar:
            loadBalancer:
              servers: [{address: "127.0.0.1:{{ include "pip.sidecarPort" (dict "root" . "protocol" "pulsar") }}"}]
      {{- else }}
      http:
        services:
          pulsar-sidecar:
            loadBalancer:
              servers: [{url: "http://127.0.0.1:{{ include "pip.sidecarPort" (dict "root" . "protocol" "http") }}"}]
              {{- if .Values.routes.failOpen }}
              healthCheck: {port: {{ include "pip.metricsPort" . }}, path: /readyz, interval: 2s, timeout: 1s}
          pulsar:
            failover: {service: pulsar-sidecar, fallback: pulsar-brokers}
              {{- end }}
          pulsar-brokers:
            loadBalancer:
              servers: [{url: "{{ $routes.webScheme }}://{{ $routes.webHost }}:{{ $routes.webPort }}"}]
        middlewares:
          # For the brokers, when they are asked directly. To the sidecar it names the listener of the ingress.
          pulsar-listener:
            headers:
              customRequestHeaders: {X-Pulsar-ListenerName: {{ $routes.listener }}, X-Original-Principal: ""}
      {{- end }}
{{- end }}

{{/* The key in the ConfigMap. Istio takes no other than `deployment` in the parameters of a Gateway. */}}
{{- define "pip.fragmentFile" -}}
{{- get (dict
  "istio" "istio-gateway-values.yaml"
  "istio-injection" "istio-injection-template.yaml"
  "gateway-api" "deployment"
  "traefik" "traefik-values.yaml") .Values.gateway.type -}}
{{- end }}

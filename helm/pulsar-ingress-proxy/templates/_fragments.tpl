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
{{- end }}

{{/* A template of istiod: an overlay for the pods that request it. */}}
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

{{/* An EnvoyProxy of Envoy Gateway. */}}
{{- define "pip.fragment.envoy-gateway" -}}
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyProxy
metadata:
  name: {{ (include "pip.gateway" . | fromYaml).name }}
  namespace: {{ .Release.Namespace }}
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
{{- end }}

{{/* The file's name in the ConfigMap. */}}
{{- define "pip.fragmentFile" -}}
{{- get (dict
  "istio" "istio-gateway-values.yaml"
  "istio-injection" "istio-injection-template.yaml"
  "envoy-gateway" "envoyproxy.yaml"
  "traefik" "traefik-values.yaml") .Values.gateway.type -}}
{{- end }}

{{/* Names and labels. */}}

{{- define "pip.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 48 | trimSuffix "-" -}}
{{- end }}

{{/* Short enough for all suffixes: names of Services and Jobs have at most 63 characters. */}}
{{- define "pip.fullname" -}}
{{- $name := include "pip.name" . -}}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- .Values.fullnameOverride | default $full | trunc 48 | trimSuffix "-" -}}
{{- end }}

{{- define "pip.labels" -}}
{{- $labels := dict
  "app.kubernetes.io/name" (include "pip.name" .)
  "app.kubernetes.io/instance" .Release.Name
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/version" .Chart.AppVersion
  "app.kubernetes.io/managed-by" .Release.Service
  "app.kubernetes.io/part-of" "pulsar" -}}
{{- merge $labels .Values.commonLabels | toYaml -}}
{{- end }}

{{/* Labels of the Deployment's pods only. */}}
{{- define "pip.selectorLabels" -}}
app.kubernetes.io/name: {{ include "pip.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: proxy
{{- end }}

{{/* Labels of pods that run to completion. */}}
{{- define "pip.checkSelector" -}}
app.kubernetes.io/name: {{ include "pip.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: check
{{- end }}

{{/* Istio's sidecar would keep them running. */}}
{{- define "pip.hookLabels" -}}
{{- merge (include "pip.checkSelector" . | fromYaml) (dict "sidecar.istio.io/inject" "false") (include "pip.labels" . | fromYaml) | toYaml -}}
{{- end }}

{{/* Metadata of an object. Takes root, and optionally suffix, namespace, labels, annotations. */}}
{{- define "pip.metadata" -}}
name: {{ include "pip.fullname" .root }}{{ with .suffix }}-{{ . }}{{ end }}
namespace: {{ .namespace | default .root.Release.Namespace }}
labels:
  {{- merge (include "pip.labels" .root | fromYaml) (.labels | default dict) | toYaml | nindent 2 }}
{{- with .annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "pip.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/*
The gateway that the sidecar runs beside, with its own chart's names as defaults. `class` and `parametersRef` are those of
a Gateway of the Gateway API.
*/}}
{{- define "pip.gateway" -}}
{{- $own := .Values.gateway -}}
{{- $parent := first (include "pip.parentRefs" . | fromJsonArray) -}}
{{- $class := $own.gatewayClass | default (eq $own.type "envoy-gateway" | ternary "eg" "istio") -}}
{{- $name := $own.name -}}
{{- $account := "" -}}
{{- $labels := dict -}}
{{- $parameters := dict "group" "" "kind" "ConfigMap" "name" (printf "%s-sidecar" (include "pip.fullname" .)) -}}
{{- if hasPrefix "istio" $own.type -}}
{{- $name = $name | default "istio-ingress" -}}
{{- $labels = dict "istio" (trimPrefix "istio-" $name) -}}
{{- else if eq $own.type "traefik" -}}
{{- $name = $name | default "traefik" -}}
{{- $labels = dict "app.kubernetes.io/name" "traefik" "app.kubernetes.io/instance" (printf "%s-%s" $name .Release.Namespace) -}}
{{- else if eq $own.type "gateway-api" -}}
{{- $name = $name | default $parent.name -}}
{{- $account = printf "%s-%s" $name $class -}}
{{- $labels = dict "gateway.networking.k8s.io/gateway-name" $name -}}
{{- else -}}
{{- $name = $name | default (include "pip.fullname" .) -}}
{{- $labels = dict "app.kubernetes.io/managed-by" "envoy-gateway" "app.kubernetes.io/component" "proxy" -}}
{{- if .Values.routes.create -}}
{{- $labels = merge $labels (dict
  "gateway.envoyproxy.io/owning-gateway-name" $parent.name
  "gateway.envoyproxy.io/owning-gateway-namespace" ($parent.namespace | default .Release.Namespace)) -}}
{{- end -}}
{{- $parameters = dict "group" "gateway.envoyproxy.io" "kind" "EnvoyProxy" "name" $name -}}
{{- end -}}
{{- dict
  "name" $name
  "serviceAccount" ($own.serviceAccount | default $account | default $name)
  "podLabels" ($own.podLabels | default $labels)
  "class" $class
  "parametersRef" $parameters | toYaml -}}
{{- end }}

{{/* What tells gateways of a namespace apart: a second release must not be beside the same one. */}}
{{- define "pip.gatewayId" -}}
{{ hasPrefix "istio" .Values.gateway.type | ternary "istio" .Values.gateway.type }}/{{ (include "pip.gateway" . | fromYaml).name }}
{{- end }}

{{/* The ServiceAccount that discovery uses. */}}
{{- define "pip.serviceAccount" -}}
{{- if eq .Values.mode "sidecar" -}}
{{- (include "pip.gateway" . | fromYaml).serviceAccount -}}
{{- else if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "pip.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end }}

{{/* Labels of the pods that contain the proxy. */}}
{{- define "pip.podSelector" -}}
{{- if eq .Values.mode "sidecar" -}}
{{- (include "pip.gateway" . | fromYaml).podLabels | toYaml -}}
{{- else -}}
{{- include "pip.selectorLabels" . -}}
{{- end -}}
{{- end }}

{{/* Labels in the format of kubectl's -l. */}}
{{- define "pip.labelSelector" -}}
{{- $pairs := list -}}
{{- range $key, $value := . -}}{{- $pairs = append $pairs (printf "%s=%s" $key $value) -}}{{- end -}}
{{- join "," $pairs -}}
{{- end }}

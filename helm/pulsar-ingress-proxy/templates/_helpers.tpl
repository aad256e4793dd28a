{{/* Names and labels. */}}

{{- define "pip.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 48 | trimSuffix "-" -}}
{{- end }}

{{/* Short enough for any suffix of ours: names of Services and Jobs end at 63 characters. */}}
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

{{/* Of the Deployment's pods, and of no others. */}}
{{- define "pip.selectorLabels" -}}
app.kubernetes.io/name: {{ include "pip.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: proxy
{{- end }}

{{/* Of pods that do one thing and end. */}}
{{- define "pip.checkSelector" -}}
app.kubernetes.io/name: {{ include "pip.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: check
{{- end }}

{{/* Istio's sidecar would keep them from ending. */}}
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

{{/* The gateway that the sidecar stands beside: what its own chart calls things, where values do not say. */}}
{{- define "pip.gateway" -}}
{{- $own := .Values.gateway -}}
{{- $names := dict "istio" "istio-ingress" "istio-injection" "istio-ingress" "traefik" "traefik" "envoy-gateway" "pulsar-ingress-proxy" -}}
{{- $name := $own.name | default (get $names $own.type) -}}
{{- $labels := dict "istio" (trimPrefix "istio-" $name) -}}
{{- if eq $own.type "traefik" -}}
{{- $labels = dict "app.kubernetes.io/name" "traefik" "app.kubernetes.io/instance" (printf "%s-%s" $name .Release.Namespace) -}}
{{- else if eq $own.type "envoy-gateway" -}}
{{- $labels = dict "app.kubernetes.io/managed-by" "envoy-gateway" "app.kubernetes.io/component" "proxy" -}}
{{- end -}}
{{- dict "name" $name "serviceAccount" ($own.serviceAccount | default $name) "podLabels" ($own.podLabels | default $labels) | toYaml -}}
{{- end }}

{{/* The ServiceAccount that discovery reads with. */}}
{{- define "pip.serviceAccount" -}}
{{- if eq .Values.mode "sidecar" -}}
{{- (include "pip.gateway" . | fromYaml).serviceAccount -}}
{{- else if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "pip.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end }}

{{/* Labels of the pods that the proxy is in. */}}
{{- define "pip.podSelector" -}}
{{- if eq .Values.mode "sidecar" -}}
{{- (include "pip.gateway" . | fromYaml).podLabels | toYaml -}}
{{- else -}}
{{- include "pip.selectorLabels" . -}}
{{- end -}}
{{- end }}

{{/* Labels as kubectl's -l takes them. */}}
{{- define "pip.labelSelector" -}}
{{- $pairs := list -}}
{{- range $key, $value := . -}}{{- $pairs = append $pairs (printf "%s=%s" $key $value) -}}{{- end -}}
{{- join "," $pairs -}}
{{- end }}

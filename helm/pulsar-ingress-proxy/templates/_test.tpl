{{/* The lookup of `helm test`. */}}

{{/* The lookup's URL; empty if values do not say how clients connect. */}}
{{- define "pip.testUrl" -}}
{{- $base := .Values.test.url -}}
{{- if and (not $base) (eq .Values.mode "gateway") -}}
{{- $socket := dict -}}
{{- range include "pip.webSockets" . | fromJsonArray | reverse -}}
{{- if or (eq .scheme "http") (not $socket) -}}{{- $socket = . -}}{{- end -}}
{{- end -}}
{{- if $socket -}}
{{- $base = printf "%s://%s.%s.svc:%v" $socket.scheme (include "pip.fullname" .) .Release.Namespace $socket.port -}}
{{- end -}}
{{- end -}}
{{- with $base -}}
{{ trimSuffix "/" . }}/lookup/v2/topic/{{ $.Values.test.topic | replace "://" "/" }}
{{- end -}}
{{- end }}

{{/* If the Service itself is asked, the Host is that of the first ingress; a wildcard is replaced by a name under it. */}}
{{- define "pip.testHeaders" -}}
{{- $headers := .Values.test.headers -}}
{{- $hosts := (first (.Values.config.ingresses | default list) | default dict).hosts -}}
{{- if and (not .Values.test.url) (not $headers) $hosts -}}
{{- $headers = list (printf "Host: %s" (first $hosts | replace "*" "helm-test")) -}}
{{- end -}}
{{- toJson $headers -}}
{{- end }}

{{/* The proxy's config, and the values that manifests take from it. */}}

{{/*
values.config merged over what routes imply, and both over the defaults of the mode, sections key by key; null overrides
a default.
*/}}
{{- define "pip.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- range list (include "pip.impliedConfig" . | fromYaml) (get (.Files.Get "files/config-defaults.yaml" | fromYaml) .Values.mode) -}}
{{- range $key, $default := . -}}
{{- if kindIs "map" $default -}}
{{- $section := get $config $key | default dict -}}
{{- range $name, $value := $default -}}
{{- if not (hasKey $section $name) -}}{{- $_ := set $section $name $value -}}{{- end -}}
{{- end -}}
{{- $_ := set $config $key $section -}}
{{- else if not (hasKey $config $key) -}}
{{- $_ := set $config $key $default -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end }}

{{- define "pip.discovery" -}}
{{- if (.Values.config.kubernetes | default dict).enabled }}true{{ end -}}
{{- end }}

{{/* The bind addresses as one string; they may also be a list. */}}
{{- define "pip.bindAddresses" -}}
{{- $addresses := (include "pip.config" . | fromYaml).bindAddresses -}}
{{- kindIs "string" $addresses | ternary $addresses ($addresses | join ",") -}}
{{- end }}

{{/* The sockets as a JSON list of scheme, host, port, port name and appProtocol; PIP-95: [listener:]scheme://host:port. */}}
{{- define "pip.sockets" -}}
{{- $pattern := "^(?:[^:/]+:)?(https?|pulsar(?:\\+ssl)?)://(.+):([0-9]+)/?$" -}}
{{- $sockets := list -}}
{{- $seen := dict -}}
{{- range include "pip.bindAddresses" . | splitList "," -}}
{{- $text := trim . -}}
{{- if regexMatch $pattern $text -}}
{{- $scheme := regexReplaceAll $pattern $text "${1}" -}}
{{- $count := add1 (get $seen $scheme | default 0) -}}
{{- $_ := set $seen $scheme $count -}}
{{- $short := $scheme | replace "+ssl" "s" -}}
{{- $sockets = append $sockets (dict
  "text" $text
  "scheme" $scheme
  "host" (regexReplaceAll $pattern $text "${2}")
  "port" (regexReplaceAll $pattern $text "${3}" | int)
  "name" (eq $count 1 | ternary $short (printf "%s-%d" $short $count))
  "protocol" (get (dict "pulsar" "tcp" "pulsar+ssl" "tls") $scheme | default $scheme)) -}}
{{- end -}}
{{- end -}}
{{- toJson $sockets -}}
{{- end }}

{{/* The sockets without duplicate ports. */}}
{{- define "pip.ports" -}}
{{- $sockets := list -}}
{{- $ports := dict -}}
{{- range include "pip.sockets" . | fromJsonArray -}}
{{- $key := toString .port -}}
{{- if not (hasKey $ports $key) -}}
{{- $_ := set $ports $key true -}}
{{- $sockets = append $sockets . -}}
{{- end -}}
{{- end -}}
{{- toJson $sockets -}}
{{- end }}

{{/* The HTTP sockets. */}}
{{- define "pip.webSockets" -}}
{{- $web := list -}}
{{- range include "pip.ports" . | fromJsonArray -}}
{{- if hasPrefix "http" .scheme -}}
{{- $web = append $web . -}}
{{- end -}}
{{- end -}}
{{- toJson $web -}}
{{- end }}

{{- define "pip.metricsAddress" -}}
{{- (include "pip.config" . | fromYaml).metrics.address -}}
{{- end }}

{{- define "pip.metricsPort" -}}
{{- regexReplaceAll "^.*:" (include "pip.metricsAddress" .) "" -}}
{{- end }}

{{/* The metrics address as the container itself can reach it. */}}
{{- define "pip.probeAddress" -}}
{{- $host := regexReplaceAll ":[0-9]+$" (include "pip.metricsAddress" .) "" -}}
{{- $host = get (dict "0.0.0.0" "127.0.0.1" "[::]" "[::1]") $host | default $host -}}
{{ $host }}:{{ include "pip.metricsPort" . }}
{{- end }}

{{/* Duration of a drain in whole seconds. */}}
{{- define "pip.drainSeconds" -}}
{{- (include "pip.config" . | fromYaml).drainSeconds | ceil | int -}}
{{- end }}

{{- define "pip.gracePeriod" -}}
{{- .Values.terminationGracePeriodSeconds | default (add .Values.preStopSeconds (include "pip.drainSeconds" . | int) 10) -}}
{{- end }}

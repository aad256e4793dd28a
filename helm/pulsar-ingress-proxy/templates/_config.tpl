{{/* The proxy's config, and what the manifests have to know of it. */}}

{{/* values.config over the defaults of the mode; in a section key by key, where null counts as said. */}}
{{- define "pip.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- range $key, $default := get (.Files.Get "files/config-defaults.yaml" | fromYaml) .Values.mode -}}
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
{{- toYaml $config -}}
{{- end }}

{{- define "pip.discovery" -}}
{{- if (.Values.config.kubernetes | default dict).enabled }}true{{ end -}}
{{- end }}

{{/* As one text: they may be written as a list, too. */}}
{{- define "pip.bindAddresses" -}}
{{- $addresses := (include "pip.config" . | fromYaml).bindAddresses -}}
{{- kindIs "string" $addresses | ternary $addresses ($addresses | join ",") -}}
{{- end }}

{{/* The sockets as a JSON list of scheme, host, port, a port's name and its appProtocol; PIP-95: [listener:]scheme://host:port. */}}
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

{{/* One of each port. */}}
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

{{/* Those of them that speak HTTP. */}}
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

{{/* As the container itself can ask there. */}}
{{- define "pip.probeAddress" -}}
{{- $host := regexReplaceAll ":[0-9]+$" (include "pip.metricsAddress" .) "" -}}
{{- $host = get (dict "0.0.0.0" "127.0.0.1" "[::]" "[::1]") $host | default $host -}}
{{ $host }}:{{ include "pip.metricsPort" . }}
{{- end }}

{{/* Whole seconds that a drain takes. */}}
{{- define "pip.drainSeconds" -}}
{{- (include "pip.config" . | fromYaml).drainSeconds | ceil | int -}}
{{- end }}

{{- define "pip.gracePeriod" -}}
{{- .Values.terminationGracePeriodSeconds | default (add .Values.preStopSeconds (include "pip.drainSeconds" . | int) 10) -}}
{{- end }}

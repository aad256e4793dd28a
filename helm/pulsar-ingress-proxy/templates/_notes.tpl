{{/* What is left to do after `helm install`: one command, and what to know about it. */}}

{{/* The values for another chart, as a command that prints them. */}}
{{- define "pip.printFragment" -}}
kubectl get configmap {{ include "pip.fullname" . }}-sidecar -n {{ .Release.Namespace }} -o jsonpath='{.data.{{ include "pip.fragmentFile" . | replace "." "\\." }}}'
{{- end }}

{{- define "pip.remainingCommand" -}}
{{- $gateway := include "pip.gateway" . | fromYaml -}}
{{- $parent := first (include "pip.parentRefs" . | fromJsonArray) -}}
{{- $namespace := .Release.Namespace -}}
{{- $type := .Values.gateway.type -}}
{{- $infrastructure := dict "spec" (dict "infrastructure" (dict "parametersRef" $gateway.parametersRef)) | toJson -}}
{{- if eq $type "istio" -}}
{{ include "pip.printFragment" . }} | helm upgrade {{ $gateway.name }} istio/gateway -n {{ $namespace }} --reset-then-reuse-values -f -
{{- else if eq $type "traefik" -}}
{{ include "pip.printFragment" . }} | helm upgrade {{ $gateway.name }} traefik/traefik -n {{ $namespace }} --reset-then-reuse-values -f -
{{- else if eq $type "istio-injection" -}}
{{ include "pip.printFragment" . }} | helm upgrade istiod istio/istiod -n istio-system --reset-then-reuse-values -f -
{{- if and .Values.routes.create .Values.routes.binary.enabled }} && kubectl patch service {{ $gateway.name }} -n {{ $namespace }} -p '{"spec":{"ports":[{"name":"tls-pulsar","port":{{ .Values.routes.binary.port }},"targetPort":{{ .Values.routes.binary.port }},"protocol":"TCP"}]}}'{{ end }}
{{- if .Release.IsUpgrade }} && kubectl rollout restart deployment {{ $gateway.name }} -n {{ $namespace }}
{{- else }} && kubectl patch deployment {{ $gateway.name }} -n {{ $namespace }} -p '{"spec":{"template":{"metadata":{"annotations":{"inject.istio.io/templates":"gateway,{{ include "pip.fullname" . }}"}}}}}'
{{- end }}
{{- else if and .Values.routes.create .Values.routes.parentRefs -}}
kubectl patch gateways.gateway.networking.k8s.io {{ $parent.name }} -n {{ $parent.namespace | default $namespace }} --type merge -p '{{ $infrastructure }}'
{{- else if and .Values.routes.create (eq $type "gateway-api") -}}
kubectl wait gateways.gateway.networking.k8s.io/{{ $gateway.name }} -n {{ $namespace }} --for=condition=Programmed --timeout=5m
{{- else if .Values.routes.create -}}
helm upgrade eg oci://docker.io/envoyproxy/gateway-helm -n {{ $namespace }} --reset-then-reuse-values --set config.envoyGateway.extensionApis.enableBackend=true
{{- else if eq $type "gateway-api" -}}
kubectl patch gateways.gateway.networking.k8s.io {{ .Values.gateway.name | default "GATEWAY" }} -n {{ $namespace }} --type merge -p '{{ $infrastructure }}'
{{- else -}}
kubectl patch gatewayclass {{ $gateway.class }} --type merge -p '{"spec":{"parametersRef":{"group":"gateway.envoyproxy.io","kind":"EnvoyProxy","name":"{{ $gateway.name }}","namespace":"{{ $namespace }}"}}}'
{{- end -}}
{{- end }}

{{- define "pip.remainingNote" -}}
{{- $type := .Values.gateway.type -}}
{{- if eq $type "istio-injection" -}}
Use the chart and version that istiod was installed with. Add the annotation to the gateway's deployment manifests, so that it stays.
{{- else if has $type (list "istio" "traefik") -}}
Use the chart and version that the gateway was installed with. Helm replaces lists in values and does not merge them: if
the gateway's values have {{ eq $type "traefik" | ternary "additionalContainers or additionalVolumes" "initContainers, volumes or volumeMounts" }}, add them to these.
{{- else if and .Values.routes.create (not .Values.routes.parentRefs) (eq $type "envoy-gateway") -}}
It switches on Backends, which the routes use. Use the chart and version that Envoy Gateway was installed with; if Backends
are on already, nothing remains.
{{- else if and .Values.routes.create (not .Values.routes.parentRefs) -}}
It waits for Istio to start the Gateway. Then point DNS at the address of its Service, {{ (include "pip.gateway" . | fromYaml).serviceAccount }}.
{{- else if eq $type "gateway-api" -}}
If the Gateway has parameters already (infrastructure.parametersRef), add `deployment` from ConfigMap {{ include "pip.fullname" . }}-sidecar to them instead.
{{- else -}}
If it refers to an EnvoyProxy already, copy the patch from EnvoyProxy {{ (include "pip.gateway" . | fromYaml).name }} into that instead.
{{- end -}}
{{- end }}

{{/* The container, for gateways' pods and for the Deployment, and the containers that only read its config. */}}

{{- define "pip.configFile" -}}/etc/pulsar-ingress-proxy/config.yaml{{- end }}

{{/* Common to all our containers. */}}
{{- define "pip.containerBase" -}}
image: {{ include "pip.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
terminationMessagePolicy: FallbackToLogsOnError
{{- end }}

{{/*
Variables override the file. So the probe asks where the process listens even if the file has changed, and beside a
gateway neither a changed file nor the proxy's own defaults can take a port that the gateway needs.
*/}}
{{- define "pip.env" -}}
- name: PULSAR_INGRESS_METRICS__ADDRESS
  value: {{ include "pip.metricsAddress" . | quote }}
{{- if eq .Values.mode "sidecar" }}
- name: PULSAR_INGRESS_BIND_ADDRESSES
  value: {{ include "pip.bindAddresses" . | quote }}
{{- end }}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- if include "pip.discovery" . }}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The container that serves. */}}
{{- define "pip.container" -}}
name: pulsar-ingress-proxy
{{ include "pip.containerBase" . }}
args: [run, --config, {{ include "pip.configFile" . }}{{ if eq .Values.mode "sidecar" }}, --hold{{ end }}]
env:
  {{- include "pip.env" . | nindent 2 }}
ports:
  {{- range include "pip.ports" . | fromJsonArray }}
  - {name: pip-{{ .name }}, containerPort: {{ .port }}, protocol: TCP}
  {{- end }}
  - {name: pip-metrics, containerPort: {{ include "pip.metricsPort" . }}, protocol: TCP}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
volumeMounts:
  - {name: pulsar-ingress-proxy-config, mountPath: /etc/pulsar-ingress-proxy, readOnly: true}
  - {name: pulsar-ingress-proxy-data, mountPath: /var/lib/pulsar-ingress-proxy}
  {{- if include "pip.discovery" . }}
  - {name: pulsar-ingress-proxy-podinfo, mountPath: /etc/podinfo, readOnly: true}
  - {name: pulsar-ingress-proxy-api-access, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
  {{- else if eq .Values.mode "sidecar" }}
  # Keeps the gateway's own token out of this container: Kubernetes mounts it wherever nothing else is.
  - {name: pulsar-ingress-proxy-no-token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
  {{- end }}
  {{- if .Values.gateway.istioCertificates }}
  - {name: istio-certs, mountPath: /etc/istio-certs, readOnly: true}
  {{- end }}
  {{- with include "pip.secretMounts" . }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/*
Beside a gateway. The probe runs inside the container, because Istio's webhook would redirect an HTTP probe to its
agent, which starts only after native sidecars. A native sidecar blocks the gateway until the probe succeeds, so the
probe only asks whether the process answers, which under --hold it does with any config.
*/}}
{{- define "pip.sidecar" -}}
{{ include "pip.container" . }}
startupProbe:
  exec:
    command: [pulsar-ingress-proxy, probe, {{ include "pip.probeAddress" . | quote }}]
  periodSeconds: 1
  timeoutSeconds: 5
  failureThreshold: 120
{{- end }}

{{/* Starts before the gateway's containers and stops after them. */}}
{{- define "pip.nativeSidecar" -}}
{{ include "pip.sidecar" . }}
restartPolicy: Always
{{- end }}

{{/*
The volumes. Beside a gateway, ConfigMaps and Secrets are optional: if one is missing, the gateway's pod must start all
the same, and under --hold the proxy waits for it.
*/}}
{{- define "pip.volumes" -}}
{{- $optional := eq .Values.mode "sidecar" -}}
- name: pulsar-ingress-proxy-config
  configMap: {name: {{ include "pip.fullname" . }}-config, optional: {{ $optional }}}
- name: pulsar-ingress-proxy-data
  emptyDir: {}
{{- if include "pip.discovery" . }}
- name: pulsar-ingress-proxy-podinfo
  downwardAPI:
    items:
      - {path: labels, fieldRef: {fieldPath: metadata.labels}}
- name: pulsar-ingress-proxy-api-access
  projected:
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3600}
      - configMap: {name: kube-root-ca.crt, optional: {{ $optional }}, items: [{key: ca.crt, path: ca.crt}]}
      - downwardAPI:
          items:
            - {path: namespace, fieldRef: {fieldPath: metadata.namespace}}
{{- else if eq .Values.mode "sidecar" }}
- name: pulsar-ingress-proxy-no-token
  emptyDir: {}
{{- end }}
{{- if .Values.gateway.istioCertificates }}
- name: istio-certs
  emptyDir: {medium: Memory}
{{- end }}
{{- with include "pip.secretVolumes" . }}
{{ . }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* secretMounts, and the certificate where the sidecar itself terminates TLS for clients. */}}
{{- define "pip.allSecretMounts" -}}
{{- $mounts := .Values.secretMounts -}}
{{- $routes := include "pip.routes" . | fromYaml -}}
{{- if and .Values.routes.create $routes.through (eq .Values.gateway.type "traefik") (not .Values.config.tls) -}}
{{- $mounts = append $mounts (dict "secretName" $routes.secret "mountPath" "/etc/pulsar-ingress-tls") -}}
{{- end -}}
{{- toJson $mounts -}}
{{- end }}

{{- define "pip.secretMounts" -}}
{{- range $place, $mount := include "pip.allSecretMounts" . | fromJsonArray -}}
{{- if $place }}{{ "\n" }}{{ end -}}
- {name: pulsar-ingress-proxy-secret-{{ $place }}, mountPath: {{ $mount.mountPath | quote }}, readOnly: true}
{{- end -}}
{{- end }}

{{- define "pip.secretVolumes" -}}
{{- range $place, $mount := include "pip.allSecretMounts" . | fromJsonArray -}}
{{- if $place }}{{ "\n" }}{{ end -}}
- name: pulsar-ingress-proxy-secret-{{ $place }}
  secret: {secretName: {{ $mount.secretName | quote }}, optional: {{ eq $.Values.mode "sidecar" }}}
{{- end -}}
{{- end }}

{{/* Common to the chart's own pods. */}}
{{- define "pip.podBase" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The container that runs `check` on the volume pulsar-ingress-proxy-config. It uses --no-files, because it has no
Secrets, and certificates may come from a container that starts later, such as Istio's agent. */}}
{{- define "pip.checkContainer" -}}
name: check
{{ include "pip.containerBase" . }}
args: [check, --no-files, --config, {{ include "pip.configFile" . }}]
env:
  {{- include "pip.env" . | nindent 2 }}
resources:
  requests: {cpu: 50m, memory: 64Mi}
  limits: {memory: 256Mi}
volumeMounts:
  - {name: pulsar-ingress-proxy-config, mountPath: /etc/pulsar-ingress-proxy, readOnly: true}
{{- end }}

{{/* A pod that checks the config in a ConfigMap and ends. Takes root and configMap. */}}
{{- define "pip.checkPod" -}}
restartPolicy: Never
{{ include "pip.podBase" .root }}
containers:
  - {{ include "pip.checkContainer" .root | nindent 4 | trim }}
volumes:
  - name: pulsar-ingress-proxy-config
    configMap: {name: {{ .configMap }}}
{{- end }}

{{/* Hooks are deleted after they ran; Helm prints their output. */}}
{{- define "pip.hookAnnotations" -}}
helm.sh/hook: {{ .hook }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
helm.sh/hook-output-log-policy: {{ .log | default "hook-failed" }}
{{- end }}

{{/* Sleeps in the kubelet, so that the image needs no program for it. */}}
{{- define "pip.preStop" -}}
{{- if .Values.preStopSeconds -}}
lifecycle:
  preStop:
    sleep: {seconds: {{ .Values.preStopSeconds }}}
{{- end }}
{{- end }}

{{/* A changed config is reloaded, except these keys, which need a new process: a change of them makes new pods. */}}
{{- define "pip.podAnnotations" -}}
{{- $atStart := pick (include "pip.config" . | fromYaml) "clusterName" "events" "metrics" | toJson | sha256sum | trunc 16 -}}
{{- $implied := dict -}}
{{- if include "pip.istioFailOpen" . -}}
{{- /* Istio's Envoy does not count this by default; the alert PulsarIngressBypassed goes by it. */ -}}
{{- $counted := "cluster\\.outbound.*pulsar-ingress-proxy\\.fail-open\\.internal;\\.upstream_rq_retry_success" -}}
{{- $_ := set $implied "proxy.istio.io/config" (dict "proxyStatsMatcher" (dict "inclusionRegexps" (list $counted)) | toYaml) -}}
{{- end -}}
{{- merge (dict "pulsar-ingress-proxy/at-start" $atStart) .Values.podAnnotations $implied | toYaml -}}
{{- end }}

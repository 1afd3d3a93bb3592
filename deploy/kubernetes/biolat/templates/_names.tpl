{{/* Names, labels and other parts that several objects share. */}}

{{- define "biolat.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "biolat.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "biolat.labels" -}}
{{ include "biolat.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "biolat.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "biolat.name" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end }}

{{- define "biolat.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end }}

{{/* YAML 1.1 reads an unquoted off as false. */}}
{{- define "biolat.workloads" -}}
{{- if kindIs "bool" .Values.workloads }}off{{ else }}{{ .Values.workloads }}{{ end -}}
{{- end }}

{{/* Empty if the names of pods are not needed. */}}
{{- define "biolat.podNames" -}}
{{- if and .Values.podNames (ne (include "biolat.workloads" .) "off") }}true{{ end -}}
{{- end }}

{{- define "biolat.scheme" -}}
{{- if .Values.webConfig.secretName }}{{ .Values.webConfig.scheme }}{{ else }}HTTP{{ end -}}
{{- end }}

{{/* A probe of the kubelet; its argument is a list of the root context and the path. */}}
{{- define "biolat.probe" -}}
{{- $root := index . 0 -}}
{{- if and $root.Values.webConfig.secretName (eq $root.Values.webConfig.probes "tcp") -}}
tcpSocket:
  port: metrics
{{- else -}}
httpGet:
  path: {{ index . 1 }}
  port: metrics
  scheme: {{ include "biolat.scheme" $root }}
{{- end -}}
{{- end }}

{{/* Scrape settings that both kinds of monitor share. */}}
{{- define "biolat.scrape" -}}
# Native histograms need the protobuf format.
scrapeProtocols: [PrometheusProto, OpenMetricsText1.0.0, PrometheusText0.0.4]
{{- if not (kindIs "invalid" .Values.monitor.nativeHistograms) }}
scrapeNativeHistograms: {{ .Values.monitor.nativeHistograms }}
{{- end }}
scrapeClassicHistograms: {{ .Values.monitor.classicHistograms }}
{{- end }}

{{- define "biolat.endpoint" -}}
port: metrics
path: /metrics
scheme: {{ include "biolat.scheme" . | lower }}
{{- with .Values.monitor.interval }}
interval: {{ . }}
{{- end }}
{{- with .Values.monitor.scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- with .Values.monitor.tlsConfig }}
tlsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.monitor.basicAuth }}
basicAuth:
  {{- toYaml . | nindent 2 }}
{{- end }}
relabelings:
  # The drives belong to the node. Pods change with each update, and the series must continue. biolat_workload_info has the
  # namespace, pod and container of others, which the target's labels of that name would replace.
  - sourceLabels: [__meta_kubernetes_pod_node_name]
    targetLabel: instance
  - action: labeldrop
    regex: namespace|pod|container|endpoint|service
  {{- with .Values.monitor.relabelings }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.monitor.metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Parts that both kinds of monitor share. */}}

{{- define "biolat.monitorMetadata" -}}
name: {{ include "biolat.name" . }}
namespace: {{ .Values.monitor.namespace | default (include "biolat.namespace" .) }}
labels:
  {{- include "biolat.labels" (list . .Values.monitor.labels) | nindent 2 }}
{{- end }}

{{/* Fails if the rules or the dashboard are for histograms that the monitor does not scrape. */}}
{{- define "biolat.checkHistograms" -}}
{{- $native := toString .Values.monitor.nativeHistograms -}}
{{- if or .Values.prometheusRule.enabled .Values.dashboard.enabled -}}
{{- if and (eq .Values.histograms "native") (eq $native "false") -}}
{{- fail "monitor.nativeHistograms is false: set histograms=classic for the rules and the dashboard" -}}
{{- end -}}
{{- if and (eq .Values.histograms "classic") (eq $native "true") (not .Values.monitor.classicHistograms) -}}
{{- fail "histograms=classic needs monitor.nativeHistograms=false or monitor.classicHistograms=true" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "biolat.monitorSpec" -}}
{{- include "biolat.checkHistograms" . -}}
# job="biolat"
jobLabel: app.kubernetes.io/name
selector:
  matchLabels:
    {{- include "biolat.selector" . | nindent 4 }}
{{- if .Values.monitor.namespace }}
namespaceSelector:
  matchNames: [{{ include "biolat.namespace" . }}]
{{- end }}
# Native histograms need the protobuf format.
scrapeProtocols: [PrometheusProto, OpenMetricsText1.0.0, PrometheusText0.0.4]
{{- if not (kindIs "invalid" .Values.monitor.nativeHistograms) }}
scrapeNativeHistograms: {{ .Values.monitor.nativeHistograms }}
{{- end }}
scrapeClassicHistograms: {{ .Values.monitor.classicHistograms }}
{{- range $field := list "sampleLimit" "labelValueLengthLimit" "nativeHistogramBucketLimit" "attachMetadata" "podTargetLabels" }}
{{- with get $.Values.monitor $field }}
{{ toYaml (dict $field .) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "biolat.endpoint" -}}
port: metrics
path: /metrics
scheme: {{ include "biolat.scheme" . | lower }}
{{- range $field := list "interval" "scrapeTimeout" "tlsConfig" "basicAuth" "authorization" }}
{{- with get $.Values.monitor $field }}
{{ toYaml (dict $field .) }}
{{- end }}
{{- end }}
relabelings:
  # The drives belong to the node, and their series must continue when an update replaces the pod. kube-state-metrics has the same
  # label node. The target's labels namespace, pod and container would hide those of biolat_workload_info, which name workloads.
  - sourceLabels: [__meta_kubernetes_pod_node_name]
    targetLabel: instance
  - sourceLabels: [__meta_kubernetes_pod_node_name]
    targetLabel: node
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

{{/* Names, namespace and labels. */}}

{{- define "biolat.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* The name of an additional object. The argument is a list of the root context and the suffix. */}}
{{- define "biolat.nameWith" -}}
{{- $suffix := index . 1 -}}
{{- printf "%s-%s" (include "biolat.name" (index . 0) | trunc (int (sub 62 (len $suffix))) | trimSuffix "-") $suffix -}}
{{- end }}

{{- define "biolat.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end }}

{{- define "biolat.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* All labels of an object. The argument is a list of the root context and the object's additional labels. The chart's own labels
     take precedence, because selectors depend on them. */}}
{{- define "biolat.labels" -}}
{{- $root := index . 0 -}}
{{- $own := include "biolat.selector" $root | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
{{- toYaml (mergeOverwrite (dict) $root.Values.commonLabels (index . 1) $own) -}}
{{- end }}

{{- define "biolat.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "biolat.name" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end }}

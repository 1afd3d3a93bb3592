{{/* Parts of the pods: image, options, probes, resources. */}}

{{- define "biolat.image" -}}
{{- $image := .Values.image -}}
{{- with .Values.global.imageRegistry | default $image.registry }}{{ . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end -}}
{{- end }}

{{/* YAML 1.1 reads an unquoted off as false. */}}
{{- define "biolat.workloads" -}}
{{- if kindIs "bool" .Values.workloads }}off{{ else }}{{ .Values.workloads }}{{ end -}}
{{- end }}

{{- define "biolat.slowNames" -}}
{{- if kindIs "bool" .Values.slowNames }}off{{ else }}{{ .Values.slowNames }}{{ end -}}
{{- end }}

{{/* Empty if pod names are not needed. */}}
{{- define "biolat.podNames" -}}
{{- if and .Values.podNames (ne (include "biolat.workloads" .) "off") }}true{{ end -}}
{{- end }}

{{/* Empty if the time that workloads are stalled is not needed. */}}
{{- define "biolat.cgroupPressure" -}}
{{- if and .Values.cgroupPressure (ne (include "biolat.workloads" .) "off") }}true{{ end -}}
{{- end }}

{{/* Empty if volume names are off. */}}
{{- define "biolat.volumeNames" -}}
{{- if and .Values.volumeNames (eq .Values.user "root") }}{{ fail "volumeNames: root could read the Secrets in the kubelet's directories: set user: nonroot or volumeNames: false" }}{{ end -}}
{{- if and (ne .Values.user "root") (or .Values.volumeNames (kindIs "invalid" .Values.volumeNames)) }}true{{ end -}}
{{- end }}

{{/* The options of the daemon that `biolat-daemon check` also has. */}}
{{- define "biolat.checkedOptions" -}}
- --listen={{ .Values.listenAddress }}:{{ .Values.port }}
{{- if .Values.webConfig.secretName }}
- --web-config=/etc/biolat/web-config.yml
{{- end }}
- --workloads={{ include "biolat.workloads" . }}
{{- if include "biolat.cgroupPressure" . }}
- --cgroupfs=/cgroups
{{- end }}
{{- if include "biolat.pinFolder" . }}
- --pin=/kept-probe
{{- end }}
{{- end }}

{{- define "biolat.scheme" -}}
{{- if .Values.webConfig.secretName }}{{ .Values.webConfig.scheme }}{{ else }}HTTP{{ end -}}
{{- end }}

{{/* A kubelet probe. The argument is a list of the root context, the path and the probe's settings. */}}
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
{{- end }}
{{ toYaml (index . 2) }}
{{- end }}

{{/* MiB of memory that a pod can need on the largest node. The README has the formula. */}}
{{- define "biolat.memory" -}}
{{- $kib := 1024 -}}
{{- $mib := mul 1024 $kib -}}
{{- $cpus := .Values.node.cpus -}}
{{- $drives := .Values.node.drives -}}
{{- $slot := mul $cpus 5888 -}}
{{- $spare := div $mib $slot | min 64 | max 4 -}}
{{- $slots := add (mul $drives 4) (mul 2 $spare) -}}
{{- $history := min (include "biolat.historyMemory" . | int) (mul $drives 2) -}}
{{- /* The probe and its understudy, which has counters of its own and is attached at the first run that the kernel refuses. */ -}}
{{- $programs := 2 -}}
{{- /* Maps of volumes have room for all possible CPUs: on virtual nodes, usually 128. */ -}}
{{- $volumes := mul .Values.node.volumes (add 64 (mul (max $cpus 128) 7)) $kib -}}
{{- $memory := add (mul 72 $mib) (mul $history $mib) (mul $drives 64 $kib) (mul $programs $slots $slot) $volumes -}}
{{- $workloads := include "biolat.workloads" . -}}
{{- if ne $workloads "off" -}}
{{- $counters := mul $cpus 512 $kib | min (mul 64 $mib) | max (mul 4 $mib) -}}
{{- $memory = add $memory (mul $programs $counters) (mul $workloads 4 16 $kib) -}}
{{- end -}}
{{- /* Rounded up to 16 MiB. */ -}}
{{- mul 16 (div (add $memory (sub (mul 16 $mib) 1)) (mul 16 $mib)) -}}
{{- end }}

{{- define "biolat.resources" -}}
{{- $computed := dict "limits" (dict "memory" (printf "%sMi" (include "biolat.memory" .))) -}}
{{- toYaml (mergeOverwrite $computed (.Values.resources | default dict)) -}}
{{- end }}

{{/* The folder that keeps the probe, or empty. */}}
{{- define "biolat.pinFolder" -}}
{{- if and .Values.pinFolder (ne .Values.user "root") }}{{ fail "pinFolder: only root can write to the node's BPF file system: set user: root" }}{{ end -}}
{{- .Values.pinFolder -}}
{{- end }}

{{/* MiB of memory for the history; 0 means no history. */}}
{{- define "biolat.historyMemory" -}}
{{- if or (not .Values.historyMemory) (eq (toString .Values.historyMemory) "off") }}0{{ else }}{{ .Values.historyMemory }}{{ end -}}
{{- end }}

{{/* The folder that keeps the history, or empty. */}}
{{- define "biolat.historyFolder" -}}
{{- if .Values.historyFolder -}}
{{- if ne .Values.user "root" }}{{ fail "historyFolder: the kubelet creates it as root's: set user: root" }}{{ end -}}
{{- if eq (include "biolat.historyMemory" .) "0" }}{{ fail "historyFolder needs a history: set historyMemory" }}{{ end -}}
{{- .Values.historyFolder -}}
{{- end -}}
{{- end }}

{{/* Whether the pod has any volume. */}}
{{- define "biolat.volumes" -}}
{{- if or .Values.webConfig.secretName (include "biolat.podNames" .) (include "biolat.cgroupPressure" .) (include "biolat.volumeNames" .) (include "biolat.pinFolder" .) (include "biolat.historyFolder" .) }}true{{ end -}}
{{- end }}

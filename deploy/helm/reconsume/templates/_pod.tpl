{{- /* What every pod of ours has. root, pod (its values, such as .Values.scheduler). */ -}}
{{- define "reconsume.podBasics" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- toYaml .root.Values.scheduler.podSecurityContext | nindent 2 }}
{{- if not (kindIs "invalid" .root.Values.scheduler.hostUsers) }}
hostUsers: {{ .root.Values.scheduler.hostUsers }}
{{- end }}
{{- include "reconsume.pullSecrets" .root }}
{{- end -}}

{{- /* Where the pods of all components may run. */ -}}
{{- define "reconsume.placement" -}}
{{- with .Values.scheduler }}
{{- with .priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* Over zones and hosts, where nothing else is said. constraints, selector. */ -}}
{{- define "reconsume.spread" -}}
topologySpreadConstraints:
  {{- if kindIs "invalid" .constraints }}
  {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- $.selector | nindent 8 }}
  {{- end }}
  {{- else }}
  {{- toYaml .constraints | nindent 2 }}
  {{- end }}
{{- end -}}

{{- /* A probe that is null is none. */ -}}
{{- define "reconsume.probes" -}}
{{- range $name, $path := dict "startupProbe" "/livez" "livenessProbe" "/livez" "readinessProbe" "/readyz" }}
{{- with get $ $name }}
{{ $name }}:
  {{- toYaml (mergeOverwrite (dict "httpGet" (dict "path" $path "port" "management")) .) | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* root, component, pdb. */ -}}
{{- define "reconsume.disruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "reconsume.metadata" . | nindent 2 }}
spec:
  maxUnavailable: {{ .pdb.maxUnavailable }}
  unhealthyPodEvictionPolicy: {{ .pdb.unhealthyPodEvictionPolicy }}
  selector:
    matchLabels:
      {{- include "reconsume.selectorLabels" . | nindent 6 }}
{{- end -}}

{{- /* A quantity of memory in MiB, or of processors in whole ones, as Kubernetes writes them. */ -}}
{{- define "reconsume.mebibytes" -}}
{{- $text := include "reconsume.scalar" . -}}
{{- $unit := regexFind "[A-Za-z]*$" $text -}}
{{- $bytes := get (dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776) $unit -}}
{{- divf (mulf (trimSuffix $unit $text | float64) $bytes) 1048576 | int64 -}}
{{- end -}}

{{- define "reconsume.processors" -}}
{{- $text := include "reconsume.scalar" . -}}
{{- divf (trimSuffix "m" $text | float64) (ternary 1000 1 (hasSuffix "m" $text)) | ceil | int64 -}}
{{- end -}}

{{- define "reconsume.containerBasics" -}}
image: {{ include "reconsume.image" (dict "root" .root "image" .image) }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  {{- toYaml .root.Values.scheduler.securityContext | nindent 2 }}
{{- end -}}

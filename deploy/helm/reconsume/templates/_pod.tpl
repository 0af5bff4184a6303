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
priorityClassName: {{ . }}
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

{{- define "reconsume.containerBasics" -}}
image: {{ include "reconsume.image" (dict "root" .root "image" (default .root.Values.image .image)) }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  {{- toYaml .root.Values.scheduler.securityContext | nindent 2 }}
{{- end -}}

{{- /* The sidecar as an init container that stays (a native sidecar): up before the application, gone after it.
Also for charts that depend on this one; the context is then .Subcharts.reconsume. It reads no settings file, because
it runs in any namespace; a Secret with the login must be there under the same name. */ -}}
{{- define "reconsume.sidecar.container" -}}
{{- $sidecar := .Values.sidecar -}}
{{- $user := pick (default (dict) .Values.scheduler.podSecurityContext) "runAsNonRoot" "runAsUser" "runAsGroup" "seccompProfile" -}}
name: reconsume
image: {{ include "reconsume.image" (dict "root" .) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- toYaml (merge (dict) (default (dict) .Values.scheduler.securityContext) $user) | nindent 2 }}
restartPolicy: Always
args:
  - sidecar
  - --listen=127.0.0.1:{{ $sidecar.port }}
  - --management=[::]:{{ $sidecar.managementPort }}
env:
  - name: RECONSUME_BOOTSTRAP_SERVERS
    value: {{ .Values.kafka.bootstrapServers | quote }}
  {{- range $key, $value := include "reconsume.kafkaSettings" . | fromYaml }}
  - name: RECONSUME_KAFKA_{{ $key | upper | replace "." "_" }}
    value: {{ $value | quote }}
  {{- end }}
  {{- include "reconsume.sidecar.settings" . | nindent 2 }}
  {{- include "reconsume.secretEnv" . | nindent 2 }}
ports:
  - name: reconsume-mgmt
    containerPort: {{ $sidecar.managementPort }}
# No readinessProbe: Kubernetes would count it for the whole pod, and an outage of Kafka would take the application out
# of its Services.
startupProbe:
  httpGet:
    path: /startupz
    port: reconsume-mgmt
  periodSeconds: 1
  failureThreshold: 60
  timeoutSeconds: 3
# Liveness waits up to 5 s for the event loops to respond.
livenessProbe:
  httpGet:
    path: /livez
    port: reconsume-mgmt
  periodSeconds: 10
  timeoutSeconds: 10
# Runs when the pod begins to end, before the application is told: from then on nothing new is taken. Not by the
# kubelet, which calls from another machine: the sidecar listens to its own alone.
lifecycle:
  preStop:
    exec:
      command:
        - python
        - -c
        - import urllib.request as u; u.urlopen("http://127.0.0.1:{{ $sidecar.managementPort }}/quiesce")
resources:
  {{- toYaml $sidecar.resources | nindent 2 }}
{{- with include "reconsume.secretMounts" . | trim }}
volumeMounts:
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* The volumes that the sidecar needs: a list, maybe empty. */ -}}
{{- define "reconsume.sidecar.volumes" -}}
{{- include "reconsume.secretVolumes" . | trim -}}
{{- end -}}

{{- /* The least terminationGracePeriodSeconds of a pod with the sidecar. */ -}}
{{- define "reconsume.sidecar.leastGrace" -}}
{{- add .Values.sidecar.quiesceSeconds .Values.sidecar.consumeTimeoutSeconds 10 -}}
{{- end -}}

{{- /* `config` as environment; lists, and tables in a section, are JSON. */ -}}
{{- define "reconsume.sidecar.settings" -}}
{{- range $key, $value := omit .Values.config "topics" "scheduler" }}
{{- if kindIs "map" $value }}
{{- range $name, $one := $value }}
{{- include "reconsume.sidecar.setting" (dict "name" (printf "%s__%s" $key $name) "value" $one) }}
{{- end }}
{{- else }}
{{- include "reconsume.sidecar.setting" (dict "name" $key "value" $value) }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "reconsume.sidecar.setting" -}}
{{- if not (kindIs "invalid" .value) }}
- name: RECONSUME_{{ upper .name }}
  value: {{ ternary (mustToRawJson .value) (include "reconsume.scalar" .value) (or (kindIs "slice" .value) (kindIs "map" .value)) | quote }}
{{- end -}}
{{- end -}}

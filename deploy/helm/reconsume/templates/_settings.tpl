{{- /* A number as TOML and librdkafka want it. Helm reads all numbers as floats and prints 1000000 as 1e+06. */ -}}
{{- define "reconsume.scalar" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}{{ int64 . }}{{- else -}}{{ . }}{{- end -}}
{{- end -}}

{{- define "reconsume.toml" -}}
{{- if kindIs "map" . -}}
{{- $pairs := list -}}
{{- range $key, $value := . -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $pairs = append $pairs (printf "%s = %s" (toJson $key) (include "reconsume.toml" $value)) -}}
{{- end -}}
{{- end -}}
{ {{ join ", " $pairs }} }
{{- else if kindIs "slice" . -}}
{{- $items := list -}}
{{- range . -}}{{- $items = append $items (include "reconsume.toml" .) -}}{{- end -}}
[{{ join ", " $items }}]
{{- else if kindIs "string" . -}}
{{ toJson . }}
{{- else -}}
{{ include "reconsume.scalar" . }}
{{- end -}}
{{- end -}}

{{- /* librdkafka's settings that are no secret. */ -}}
{{- define "reconsume.kafkaSettings" -}}
{{- $security := .Values.kafka.security -}}
security.protocol: {{ $security.protocol }}
{{- if hasPrefix "SASL" $security.protocol }}
sasl.mechanism: {{ $security.sasl.mechanism }}
{{- if eq $security.sasl.mechanism "OAUTHBEARER" }}
sasl.oauthbearer.method: oidc
sasl.oauthbearer.client.id: {{ $security.sasl.oauth.clientId | quote }}
sasl.oauthbearer.token.endpoint.url: {{ $security.sasl.oauth.tokenEndpointUrl | quote }}
{{- with $security.sasl.oauth.scope }}
sasl.oauthbearer.scope: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- with $security.tls }}
{{- if and .keys.ca (or .caSecret .existingSecret) }}
ssl.ca.location: /run/reconsume/{{ ternary "ca" "tls" (not (empty .caSecret)) }}/{{ .keys.ca }}
{{- end }}
{{- if and .keys.cert .existingSecret }}
ssl.certificate.location: /run/reconsume/tls/{{ .keys.cert }}
ssl.key.location: /run/reconsume/tls/{{ .keys.key }}
{{- end }}
{{- end }}
{{- range $key, $value := .Values.kafka.properties }}
{{ $key }}: {{ include "reconsume.scalar" $value | quote }}
{{- end }}
{{- end -}}

{{- /* The settings file. */ -}}
{{- define "reconsume.settings" -}}
bootstrap_servers = {{ toJson .Values.kafka.bootstrapServers }}
{{- range $key, $value := .Values.config }}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) }}
{{ $key }} = {{ include "reconsume.toml" $value }}
{{- end }}
{{- end }}

[kafka]
{{- range $key, $value := include "reconsume.kafkaSettings" . | fromYaml }}
{{ toJson $key }} = {{ toJson $value }}
{{- end }}
{{- range $section, $values := .Values.config }}
{{- if kindIs "map" $values }}

[{{ $section }}]
{{- range $key, $value := $values }}
{{- if not (kindIs "invalid" $value) }}
{{ toJson $key }} = {{ include "reconsume.toml" $value }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* Secrets reach the program as files, so that they are in no environment and may be rotated. */ -}}
{{- define "reconsume.secretEnv" -}}
{{- $sasl := .Values.kafka.security.sasl -}}
{{- if and (hasPrefix "SASL" .Values.kafka.security.protocol) $sasl.existingSecret }}
{{- if eq $sasl.mechanism "OAUTHBEARER" }}
- name: RECONSUME_KAFKA_SASL_OAUTHBEARER_CLIENT_SECRET_FILE
  value: /run/reconsume/sasl/{{ $sasl.keys.clientSecret }}
{{- else }}
{{- if $sasl.username }}
- name: RECONSUME_KAFKA_SASL_USERNAME
  value: {{ $sasl.username | quote }}
{{- else }}
- name: RECONSUME_KAFKA_SASL_USERNAME_FILE
  value: /run/reconsume/sasl/{{ $sasl.keys.username }}
{{- end }}
- name: RECONSUME_KAFKA_SASL_PASSWORD_FILE
  value: /run/reconsume/sasl/{{ $sasl.keys.password }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "reconsume.secretMounts" -}}
{{- $security := .Values.kafka.security -}}
{{- if and (hasPrefix "SASL" $security.protocol) $security.sasl.existingSecret }}
- name: reconsume-sasl
  mountPath: /run/reconsume/sasl
  readOnly: true
{{- end }}
{{- if $security.tls.existingSecret }}
- name: reconsume-tls
  mountPath: /run/reconsume/tls
  readOnly: true
{{- end }}
{{- if $security.tls.caSecret }}
- name: reconsume-ca
  mountPath: /run/reconsume/ca
  readOnly: true
{{- end }}
{{- end -}}

{{- define "reconsume.secretVolumes" -}}
{{- $security := .Values.kafka.security -}}
{{- if and (hasPrefix "SASL" $security.protocol) $security.sasl.existingSecret }}
- name: reconsume-sasl
  secret:
    secretName: {{ $security.sasl.existingSecret | quote }}
{{- end }}
{{- if $security.tls.existingSecret }}
- name: reconsume-tls
  secret:
    secretName: {{ $security.tls.existingSecret | quote }}
{{- end }}
{{- if $security.tls.caSecret }}
- name: reconsume-ca
  secret:
    secretName: {{ $security.tls.caSecret | quote }}
{{- end }}
{{- end -}}

{{- /* Environment, mounts and volumes of a pod that reads the settings file. root, configMap. */ -}}
{{- define "reconsume.env" -}}
- name: RECONSUME_CONFIG
  value: /etc/reconsume/{{ ternary .Values.existingConfigMapKey "reconsume.toml" (not (empty .Values.existingConfigMap)) }}
{{- include "reconsume.secretEnv" . }}
{{- end -}}

{{- define "reconsume.mounts" -}}
- name: settings
  mountPath: /etc/reconsume
  readOnly: true
{{- include "reconsume.secretMounts" . }}
{{- end -}}

{{- define "reconsume.volumes" -}}
- name: settings
  configMap:
    name: {{ default .configMap .root.Values.existingConfigMap | quote }}
{{- include "reconsume.secretVolumes" .root }}
{{- end -}}

{{- /* What a container reads: environment and mounts. own (whose settings), more (its extra… values), env, mounts. */ -}}
{{- define "reconsume.inputs" -}}
env:
  {{- with .env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- include "reconsume.env" .own | nindent 2 }}
  {{- with .more.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .more.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  {{- include "reconsume.mounts" .own | nindent 2 }}
  {{- with .mounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .more.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- /* Volumes of a pod. root, own (whose settings), more (its extra… values), configMap where it is another one, volumes. */ -}}
{{- define "reconsume.podVolumes" -}}
volumes:
  {{- $settings := default (printf "%s-settings" (include "reconsume.fullname" .root)) .configMap }}
  {{- include "reconsume.volumes" (dict "root" .own "configMap" $settings) | nindent 2 }}
  {{- with .volumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .more.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- /* Annotations that replace pods when what they read has changed: the settings, and Secrets and a ConfigMap that
others write. The second is left out where no cluster can be asked, as with helm template. root, own, secrets (more). */ -}}
{{- define "reconsume.checksums" -}}
checksum/config: {{ include "reconsume.settings" .root | sha256sum }}
{{- if .root.Values.restartOnSecretChange }}
{{- $security := .own.Values.kafka.security }}
{{- $login := ternary $security.sasl.existingSecret "" (hasPrefix "SASL" $security.protocol) }}
{{- $found := list }}
{{- range uniq (compact (concat (list $login $security.tls.existingSecret $security.tls.caSecret) (default list .secrets))) }}
{{- $found = append $found (get (lookup "v1" "Secret" $.root.Release.Namespace .) "data") }}
{{- end }}
{{- with .own.Values.existingConfigMap }}
{{- $found = append $found (get (lookup "v1" "ConfigMap" $.root.Release.Namespace .) "data") }}
{{- end }}
{{- with compact $found }}
checksum/secrets: {{ toJson . | sha256sum }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "reconsume.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- /* 40 characters leave room for "-scheduler" and what controllers add: StatefulSets and CronJobs may have 52. */ -}}
{{- define "reconsume.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "reconsume.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "reconsume.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "reconsume.serviceAccountName" -}}
{{- $made := ternary (include "reconsume.fullname" .) "default" .Values.serviceAccount.create -}}
{{- default $made .Values.serviceAccount.name -}}
{{- end -}}

{{- /* Names that a user gives are quoted, here and elsewhere: 1234 and 12e4 are legal, and numbers of YAML. */ -}}

{{- /* What selects pods; never changed, because selectors of workloads cannot be. */ -}}
{{- define "reconsume.selectorLabels" -}}
app.kubernetes.io/name: {{ include "reconsume.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- /* Maps as one, in which no key is twice: later maps win, and null is an empty one. */ -}}
{{- define "reconsume.merged" -}}
{{- $merged := dict -}}
{{- range . -}}
{{- range $key, $value := . -}}
{{- $_ := set $merged $key $value -}}
{{- end -}}
{{- end -}}
{{- with $merged -}}
{{ toYaml . }}
{{- end -}}
{{- end -}}

{{- /* root, component; labels where there are more. */ -}}
{{- define "reconsume.labels" -}}
{{- $chart := printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" -}}
{{- $own := dict "helm.sh/chart" $chart "app.kubernetes.io/version" .root.Chart.AppVersion "app.kubernetes.io/managed-by" .root.Release.Service "app.kubernetes.io/part-of" "reconsume" -}}
{{- include "reconsume.merged" (list $own (include "reconsume.selectorLabels" . | fromYaml) .root.Values.commonLabels .labels) -}}
{{- end -}}

{{- /* metadata of an object. root, component; name, namespace, labels, annotations where they differ. */ -}}
{{- define "reconsume.metadata" -}}
name: {{ default (printf "%s-%s" (include "reconsume.fullname" .root) .component) .name | quote }}
namespace: {{ default .root.Release.Namespace .namespace | quote }}
labels:
  {{- include "reconsume.labels" . | nindent 2 }}
{{- with include "reconsume.merged" (list .root.Values.commonAnnotations .annotations) }}
annotations:
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* An image of .image, if there is one; what is empty there is taken from the chart's own. */ -}}
{{- define "reconsume.image" -}}
{{- $image := default .root.Values.image .image -}}
{{- $global := default (dict) .root.Values.global -}}
{{- $registry := coalesce $global.imageRegistry $image.registry .root.Values.image.registry -}}
{{- $name := ternary (printf "%s/%s" $registry $image.repository) $image.repository (not (empty $registry)) -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (coalesce $image.tag .root.Values.image.tag .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "reconsume.pullSecrets" -}}
{{- $global := default (dict) .Values.global -}}
{{- with concat (default (list) $global.imagePullSecrets) (default (list) .Values.imagePullSecrets) }}
imagePullSecrets:
  {{- range . }}
  - name: {{ ternary . (get (ternary (dict) . (kindIs "string" .)) "name") (kindIs "string" .) | quote }}
  {{- end }}
{{- end }}
{{- end -}}

{{- /* What the schema cannot say: values that do not go together. Each message names the value and the way out. */ -}}
{{- define "reconsume.checks" -}}
{{- $values := .Values -}}
{{- $wrong := list -}}
{{- $security := $values.kafka.security -}}
{{- if and (not $values.kafka.bootstrapServers) (not $values.existingConfigMap) -}}
{{- $wrong = append $wrong "kafka.bootstrapServers is empty: set it to host:port of your brokers, or name a settings file with existingConfigMap" -}}
{{- end -}}
{{- if and $values.sidecar.inject.policy.enabled (not $values.kafka.bootstrapServers) -}}
{{- $wrong = append $wrong "sidecars do not read existingConfigMap: set kafka.bootstrapServers, and kafka.security where it needs a login" -}}
{{- end -}}
{{- if and $values.kafka.bootstrapServers (not (regexMatch "^[^\\s,]+:[0-9]+(,[^\\s,]+:[0-9]+)*$" $values.kafka.bootstrapServers)) -}}
{{- $wrong = append $wrong (printf "kafka.bootstrapServers is %q: write host:port, comma-separated" $values.kafka.bootstrapServers) -}}
{{- end -}}
{{- if and $values.delayLevels (not (regexMatch "^[1-9][0-9]*[smhd]( [1-9][0-9]*[smhd])*$" $values.delayLevels)) -}}
{{- $wrong = append $wrong (printf "delayLevels is %q: write durations separated by single spaces, each a whole number and s, m, h or d, such as 1s 5s 10s" $values.delayLevels) -}}
{{- end -}}
{{- if and $values.image.digest (not (regexMatch "^sha256:[0-9a-f]{64}$" $values.image.digest)) -}}
{{- $wrong = append $wrong (printf "image.digest is %q: write sha256: and 64 hexadecimal digits" $values.image.digest) -}}
{{- end -}}
{{- range $key, $instead := dict "bootstrap_servers" "kafka.bootstrapServers" "kafka" "kafka.properties" "management" "scheduler.managementPort" -}}
{{- if hasKey $values.config $key -}}
{{- $wrong = append $wrong (printf "config.%s has a value of its own: set %s" $key $instead) -}}
{{- end -}}
{{- end -}}
{{- if hasKey (default (dict) $values.config.scheduler) "instance_id" -}}
{{- $wrong = append $wrong "config.scheduler.instance_id would be the same for all workers, and each takes its pod's name; leave it out, or set scheduler.instanceIdPrefix" -}}
{{- end -}}
{{- range $key := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" -}}
{{- range $name, $labels := dict "commonLabels" $values.commonLabels "scheduler.podLabels" $values.scheduler.podLabels "console.podLabels" $values.console.podLabels -}}
{{- if hasKey (default (dict) $labels) $key -}}
{{- $wrong = append $wrong (printf "%s has %s, by which this chart selects its pods: leave it out, or set nameOverride" $name $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $values.existingConfigMap (or $values.config $values.kafka.properties) -}}
{{- $wrong = append $wrong "existingConfigMap replaces config and kafka.properties: leave those empty" -}}
{{- end -}}
{{- if hasPrefix "SASL" $security.protocol -}}
{{- if not $security.sasl.mechanism -}}
{{- $wrong = append $wrong (printf "kafka.security.protocol is %s: set kafka.security.sasl.mechanism, such as SCRAM-SHA-512" $security.protocol) -}}
{{- end -}}
{{- if not $security.sasl.existingSecret -}}
{{- $wrong = append $wrong (printf "kafka.security.protocol is %s: name the Secret with the login in kafka.security.sasl.existingSecret" $security.protocol) -}}
{{- end -}}
{{- if and (eq $security.sasl.mechanism "OAUTHBEARER") (not (and $security.sasl.oauth.tokenEndpointUrl $security.sasl.oauth.clientId)) -}}
{{- $wrong = append $wrong "kafka.security.sasl.mechanism is OAUTHBEARER: set kafka.security.sasl.oauth.tokenEndpointUrl and clientId" -}}
{{- end -}}
{{- end -}}
{{- if ne (empty $security.tls.keys.cert) (empty $security.tls.keys.key) -}}
{{- $wrong = append $wrong "kafka.security.tls.keys.cert and key go together: set both, or none" -}}
{{- end -}}
{{- if and $security.tls.keys.cert (not $security.tls.existingSecret) -}}
{{- $wrong = append $wrong "kafka.security.tls.keys.cert is set: name the Secret in kafka.security.tls.existingSecret" -}}
{{- end -}}
{{- $fullname := include "reconsume.fullname" . -}}
{{- if and (or $values.scheduler.enabled $values.console.enabled) (not (regexMatch "^[a-z][-a-z0-9]*$" $fullname)) -}}
{{- $wrong = append $wrong (printf "the names of Services would begin with %q, but must begin with a letter and have no dots: set fullnameOverride" $fullname) -}}
{{- end -}}
{{- $id := printf "%s%s.%s-999" $values.scheduler.instanceIdPrefix .Release.Namespace $fullname -}}
{{- if gt (len $id) 89 -}}
{{- $wrong = append $wrong "namespace, release name and scheduler.instanceIdPrefix are too long together for an instance id of 100 characters: shorten one, or set fullnameOverride" -}}
{{- end -}}
{{- $least := include "reconsume.leastGrace" . | int -}}
{{- $given := $values.scheduler.terminationGracePeriodSeconds -}}
{{- if and (not (kindIs "invalid" $given)) (lt (int $given) $least) -}}
{{- $wrong = append $wrong (printf "scheduler.terminationGracePeriodSeconds is %d: a worker may need %d s to finish its transaction and leave its group; set at least that, or leave it out" (int $given) $least) -}}
{{- end -}}
{{- with $values.scheduler.autoscaling.keda -}}
{{- if and .enabled (not .serverAddress) -}}
{{- $wrong = append $wrong "scheduler.autoscaling.keda.enabled is set: set scheduler.autoscaling.keda.serverAddress to the address of Prometheus" -}}
{{- end -}}
{{- if and .enabled (lt (int $values.scheduler.replicas) 1) -}}
{{- $wrong = append $wrong "scheduler.replicas is 0, and scheduler.autoscaling.keda.enabled is set: workers alone tell what is overdue; set scheduler.replicas to 1 or more" -}}
{{- end -}}
{{- if and .enabled (lt (int .maxReplicas) (int $values.scheduler.replicas)) -}}
{{- $wrong = append $wrong (printf "scheduler.autoscaling.keda.maxReplicas is %d, less than scheduler.replicas, which is %d" (int .maxReplicas) (int $values.scheduler.replicas)) -}}
{{- end -}}
{{- end -}}
{{- if and (eq $values.topics.manage "strimziKafkaTopic") (not $values.topics.strimzi.cluster) -}}
{{- $wrong = append $wrong "topics.manage is strimziKafkaTopic: name the Kafka resource in topics.strimzi.cluster" -}}
{{- end -}}
{{- if $values.topics.strimzi.kafkaUser.enabled -}}
{{- $login := ternary $security.sasl.existingSecret $security.tls.existingSecret (hasPrefix "SASL" $security.protocol) -}}
{{- $made := printf "%s-scheduler" $fullname -}}
{{- if not $values.topics.strimzi.cluster -}}
{{- $wrong = append $wrong "topics.strimzi.kafkaUser.enabled is set: name the Kafka resource in topics.strimzi.cluster" -}}
{{- end -}}
{{- if and (eq $values.topics.manage "job") (eq $login $made) -}}
{{- $wrong = append $wrong (printf "topics.manage is job: the topics Job runs before Strimzi makes the Secret %s, and that user may not create topics; set topics.manage to strimziKafkaTopic or none" $made) -}}
{{- end -}}
{{- end -}}
{{- if and (ne $values.topics.manage "job") (or $values.groups (and $values.delayLevels (ne $values.topics.manage "strimziKafkaTopic"))) -}}
{{- $wrong = append $wrong (printf "groups and delayLevels are written by the topics Job, and topics.manage is %s: set it to job, or use reconsume groups apply" $values.topics.manage) -}}
{{- end -}}
{{- $runbooks := $values.metrics.prometheusRule.runbookUrl -}}
{{- if and $runbooks (not (regexMatch "^https?://[^/]" $runbooks)) -}}
{{- $wrong = append $wrong (printf "metrics.prometheusRule.runbookUrl is %q: write an address that a browser opens, such as https://git.example.com/reconsume/docs/runbooks/" $runbooks) -}}
{{- end -}}
{{- range $kind := list "limits" "requests" -}}
{{- range $name, $form := dict "memory" "^[0-9]+([.][0-9]+)?([kMGT]|[KMGT]i)?$" "cpu" "^[0-9]+([.][0-9]+)?m?$" -}}
{{- $given := include "reconsume.scalar" (default "1" (dig "resources" $kind $name "" $values.reconcile)) -}}
{{- if not (regexMatch $form $given) -}}
{{- $wrong = append $wrong (printf "reconcile.resources.%s.%s is %q: write it such as %s" $kind $name $given (ternary "3Gi" "2 or 1500m" (eq $name "memory"))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $values.reconcile.enabled (has $security.sasl.mechanism (list "OAUTHBEARER")) -}}
{{- $wrong = append $wrong "reconcile cannot log in with OAUTHBEARER: set reconcile.enabled to false, or use SCRAM" -}}
{{- end -}}
{{- with $values.console -}}
{{- if and (not .enabled) (or .ingress.enabled .httpRoute.enabled) -}}
{{- $wrong = append $wrong "console.ingress or console.httpRoute is enabled without the console: set console.enabled" -}}
{{- end -}}
{{- if .enabled -}}
{{- if not (or .auth.existingSecret .auth.proxy) -}}
{{- $wrong = append $wrong "console.enabled is set: name the Secret with its token in console.auth.existingSecret; create one with kubectl create secret generic reconsume-console --from-literal=token=$(openssl rand -hex 32)" -}}
{{- end -}}
{{- if and (or .auth.tokensKey .auth.clientSecretKey .auth.sessionKey) (not .auth.existingSecret) -}}
{{- $wrong = append $wrong "console.auth.tokensKey, clientSecretKey and sessionKey are keys of a Secret: name it in console.auth.existingSecret" -}}
{{- end -}}
{{- if and (or .auth.proxy .auth.oidc) (not .auth.access) -}}
{{- $wrong = append $wrong "console.auth.proxy or console.auth.oidc is set: say who may do what in console.auth.access, such as [{role: viewer, people: ['*']}]" -}}
{{- end -}}
{{- /* Without a session key each pod signs with a random key; the shared token signs forms, never sessions. */ -}}
{{- $signs := or .auth.sessionKey (and .auth.existingSecret .auth.key (not .auth.oidc)) -}}
{{- if and (gt (int .replicas) 1) (not $signs) -}}
{{- $wrong = append $wrong (printf "console.replicas is %d, and the pods have no key in common that signs forms and sessions: name one of console.auth.existingSecret in console.auth.sessionKey, or set console.replicas to 1" (int .replicas)) -}}
{{- end -}}
{{- if has (int .managementPort) (list (int .port) (int .service.port)) -}}
{{- $wrong = append $wrong (printf "console.managementPort is %d, and so is console.port or console.service.port: they must differ" (int .managementPort)) -}}
{{- end -}}
{{- if and .ingress.enabled (not .ingress.host) -}}
{{- $wrong = append $wrong "console.ingress.enabled is set: set console.ingress.host to the console's host name" -}}
{{- end -}}
{{- if and .httpRoute.enabled (not .httpRoute.parentRefs) -}}
{{- $wrong = append $wrong "console.httpRoute.enabled is set: name its gateways in console.httpRoute.parentRefs" -}}
{{- end -}}
{{- if and .kafka.sasl.username (not .kafka.sasl.existingSecret) -}}
{{- $wrong = append $wrong "console.kafka.sasl.username is set: name the Secret with its password in console.kafka.sasl.existingSecret" -}}
{{- end -}}
{{- if and .kafka.tls.existingSecret (not $security.tls.existingSecret) -}}
{{- $wrong = append $wrong "console.kafka.tls.existingSecret takes the place of kafka.security.tls.existingSecret, which is empty: set that one too" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $wrong -}}
{{- fail (printf "\n\n%s\n" (join "\n" $wrong)) -}}
{{- end -}}
{{- end -}}

{{- /* A worker that stops finishes its transaction, closes its clients and leaves its group. */ -}}
{{- define "reconsume.leastGrace" -}}
{{- $timeout := dig "scheduler" "transaction_timeout_ms" 10000 .Values.config -}}
{{- add 20 (ceil (divf $timeout 1000) | int) -}}
{{- end -}}

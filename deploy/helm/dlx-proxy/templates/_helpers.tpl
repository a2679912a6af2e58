{{- define "dlx-proxy.name" -}}
{{- $name := .Release.Name }}
{{- if not (contains .Chart.Name $name) }}{{ $name = printf "%s-%s" $name .Chart.Name }}{{ end }}
{{- $name | trunc 53 | trimSuffix "-" }}
{{- end }}

{{- define "dlx-proxy.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: standalone
{{- end }}

{{- define "dlx-proxy.labels" -}}
{{ include "dlx-proxy.selector" . }}
{{ include "dlx-proxy.origin" . }}
{{- end }}

{{- define "dlx-proxy.sidecar.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: sidecar
{{ include "dlx-proxy.origin" . }}
{{- end }}

{{- define "dlx-proxy.origin" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* What the container is in both places. Its argument: root, listen, admin (a port's name), tls, resources. */}}
{{- define "dlx-proxy.container" -}}
{{- $secret := .tls.secretName -}}
{{- $adminTls := and $secret .tls.admin -}}
image: {{ printf "%s:%s" .root.Values.image.repository (.root.Values.image.tag | default .root.Chart.AppVersion) | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
args: [run, --config, /etc/dlx-proxy/dlx-proxy.toml]
env:
  - name: DLX_PROXY_LISTEN
    value: {{ if and $secret (not .tls.plain) }}""{{ else }}{{ .listen }}{{ end }}
  {{- if $secret }}
  - name: DLX_PROXY_LISTEN_TLS
    value: 0.0.0.0:5671
  - name: DLX_PROXY_TLS_CERT_FILE
    value: /etc/dlx-proxy-tls/tls.crt
  - name: DLX_PROXY_TLS_KEY_FILE
    value: /etc/dlx-proxy-tls/tls.key
  {{- end }}
  - name: DLX_PROXY_ADMIN
    value: {{ if $adminTls }}""{{ else }}0.0.0.0:15673{{ end }}
  {{- if $adminTls }}
  - name: DLX_PROXY_ADMIN_TLS
    value: 0.0.0.0:15673
  {{- end }}
  # The broker, and the user of the proxy's own connections. Clients pass through with their own users.
  - name: DLX_PROXY_UPSTREAM
    valueFrom:
      secretKeyRef:
        name: {{ .root.Values.secret }}
        key: upstream
  - name: DLX_PROXY_MANAGEMENT_URL
    valueFrom:
      secretKeyRef:
        name: {{ .root.Values.secret }}
        key: management-url
        optional: true
  {{- with .root.Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
startupProbe:
  httpGet:
    path: /healthz
    port: {{ .admin }}
    {{- if $adminTls }}
    scheme: HTTPS
    {{- end }}
  periodSeconds: 1
  failureThreshold: 30
livenessProbe:
  httpGet:
    path: /healthz
    port: {{ .admin }}
    {{- if $adminTls }}
    scheme: HTTPS
    {{- end }}
  periodSeconds: 10
  timeoutSeconds: 3
# Ready while the proxy handles dead letters: a wrong password stops a roll-out before the last good Pod goes (`ready-when-refused`).
readinessProbe:
  httpGet:
    path: /readyz
    port: {{ .admin }}
    {{- if $adminTls }}
    scheme: HTTPS
    {{- end }}
  periodSeconds: 5
  timeoutSeconds: 3
resources:
  {{- toYaml .resources | nindent 2 }}
volumeMounts:
  - name: dlx-proxy
    mountPath: /etc/dlx-proxy
    readOnly: true
  {{- if $secret }}
  - name: dlx-proxy-tls
    mountPath: /etc/dlx-proxy-tls
    readOnly: true
  {{- end }}
  {{- with .root.Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* An item of initContainers, for the Pod of an application. Its argument: the context of this chart, `index .Subcharts "dlx-proxy"`. */}}
{{- define "dlx-proxy.sidecar" -}}
# An init container that stays: it is up before the application starts, and ends after it, so that the last rejects are still settled.
- name: dlx-proxy
  restartPolicy: Always
  {{- include "dlx-proxy.container" (dict "root" . "listen" "127.0.0.1:5673" "admin" "dlx-proxy-admin" "tls" (dict) "resources" .Values.sidecar.resources) | nindent 2 }}
  ports:
    - name: dlx-proxy-admin
      containerPort: 15673
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities:
      drop: [ALL]
    seccompProfile:
      type: RuntimeDefault
{{- end }}

{{/* Items of volumes beside it, with the same argument. */}}
{{- define "dlx-proxy.volume" -}}
- name: dlx-proxy
  configMap:
    name: {{ include "dlx-proxy.name" . }}-sidecar
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

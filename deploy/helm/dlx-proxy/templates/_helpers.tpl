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

{{/* What the container is in both places. Its argument: root, listen, admin (a port's name), resources. */}}
{{- define "dlx-proxy.container" -}}
image: {{ printf "%s:%s" .root.Values.image.repository (.root.Values.image.tag | default .root.Chart.AppVersion) | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
args: [run, --config, /etc/dlx-proxy/dlx-proxy.toml]
env:
  - name: DLX_PROXY_LISTEN
    value: {{ .listen }}
  - name: DLX_PROXY_ADMIN
    value: 0.0.0.0:15673
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
  periodSeconds: 1
  failureThreshold: 30
livenessProbe:
  httpGet:
    path: /healthz
    port: {{ .admin }}
  periodSeconds: 10
  timeoutSeconds: 3
readinessProbe:
  httpGet:
    path: /readyz
    port: {{ .admin }}
  periodSeconds: 5
  timeoutSeconds: 3
resources:
  {{- toYaml .resources | nindent 2 }}
volumeMounts:
  - name: dlx-proxy
    mountPath: /etc/dlx-proxy
    readOnly: true
{{- end }}

{{/* An item of initContainers, for the Pod of an application. Its argument: the context of this chart, `index .Subcharts "dlx-proxy"`. */}}
{{- define "dlx-proxy.sidecar" -}}
- name: dlx-proxy
  restartPolicy: Always
  {{- include "dlx-proxy.container" (dict "root" . "listen" "127.0.0.1:5673" "admin" "dlx-proxy-admin" "resources" .Values.sidecar.resources) | nindent 2 }}
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

{{/* An item of volumes beside it, with the same argument. */}}
{{- define "dlx-proxy.volume" -}}
- name: dlx-proxy
  configMap:
    name: {{ include "dlx-proxy.name" . }}-sidecar
{{- end }}

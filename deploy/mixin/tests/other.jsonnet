// The mixin with a non-default _config, as JSON, which Prometheus reads as YAML.
local mixin(histograms) = (import '../mixin.libsonnet') {
  _config+:: {
    histograms: histograms,
    biolatSelector: 'job="storage"',
    seriesSelector: 'env="production"',
    nodeExporterSelector: 'job="node"',
    kubeStateMetricsSelector: 'job="ksm"',
    clusterLabel: 'site',
    runbookURLPattern: 'https://wiki.example/storage/%s',
    ignoredAlerts: ['BlockDeviceFlushStorm'],
    hungSeconds: 60,
    errorsRatio: 0.05,
    slowerThanPastFactor: 2.5,
    slowerThanSiblingsFactor: 4,
    slo+: { enabled: true, objective: 0.98, targets: { nvme: { read: 0.0625 } } },
    dashboardTitlePrefix: 'Storage / ',
    dashboardTags: ['storage-team'],
  },
};

{
  'alerts.json': mixin('native').prometheusAlerts,
  'recording.json': mixin('native').prometheusRules,
  'recording-classic.json': mixin('classic').prometheusRules,
  'dashboards.json': mixin('native').grafanaDashboards + mixin('classic').grafanaDashboards,
}

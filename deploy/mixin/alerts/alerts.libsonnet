local expressions = import '../promql.libsonnet';

{
  local config = $._config,
  local promql = expressions(config),

  // The claims on the drive, which only recorded series tell: as a label, each of them would make another alert.
  local claims = promql.adapt(
    '{{ with printf `namespace_persistentvolumeclaim_device:biolat_device_holder_info:group{cluster="%s",instance="%s",device="%s"}` $labels.cluster $labels.instance $labels.device | query }}'
    + ' Claims on the drive:{{ range . | sortByLabel "persistentvolumeclaim" | sortByLabel "namespace" }} {{ .Labels.namespace }}/{{ .Labels.persistentvolumeclaim }}{{ end }}.{{ end }}'
  ),
  local isOnDrive(rule) = std.length(std.findSubstr('$labels.device }}', rule.annotations.summary)) > 0,

  // Fills in the thresholds of _config, names the claims, and links each alert to its section in the runbook.
  local complete(group) = group {
    rules: [
      rule {
        expr: promql.adapt(rule.expr % config),
        annotations+: {
          description+: if isOnDrive(rule) then claims else '',
          runbook_url: config.runbookURLPattern % std.asciiLower(rule.alert),
        },
      }
      for rule in group.rules
      if !std.member(config.ignoredAlerts, rule.alert)
    ],
  },

  prometheusAlerts+:: {
    groups+: [
      complete(group(config))
      for group in [
        import 'drives.libsonnet',
        import 'fail_slow.libsonnet',
        import 'sizes.libsonnet',
        import 'figures.libsonnet',
        import 'fleet.libsonnet',
      ] + (if config.slo.enabled then [import 'slo.libsonnet'] else [])
    ],
  },
}

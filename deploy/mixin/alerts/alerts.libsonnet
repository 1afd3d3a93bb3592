local expressions = import '../promql.libsonnet';

{
  local config = $._config,
  local promql = expressions(config),

  // Fills in the thresholds of _config, and links each alert to its section in the runbook.
  local complete(group) = group {
    rules: [
      rule {
        expr: promql.adapt(rule.expr % config),
        annotations+: { runbook_url: config.runbookURLPattern % std.asciiLower(rule.alert) },
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

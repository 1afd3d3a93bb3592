local expressions = import '../promql.libsonnet';

{
  local config = $._config,
  local promql = expressions(config),
  local histograms = {
    native: import 'native.libsonnet',
    classic: import 'classic.libsonnet',
  }[config.histograms],

  local complete(group) = { interval: '1m' } + group {
    rules: [rule { expr: promql.adapt(rule.expr) } for rule in group.rules],
  },

  prometheusRules+:: {
    groups+: [
      complete(group(histograms, config))
      for group in [
        import 'devices.libsonnet',
        import 'fail_slow.libsonnet',
        import 'models.libsonnet',
        import 'fleet.libsonnet',
        import 'pods.libsonnet',
        import 'volumes.libsonnet',
        import 'claims.libsonnet',
        import 'daemons.libsonnet',
      ] + (if config.slo.enabled then [import 'slo.libsonnet'] else [])
    ],
  },
}

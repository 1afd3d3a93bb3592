// The dashboard from deploy/grafana, adapted to _config.
local defaults = (import 'config.libsonnet')._config;
local expressions = import 'promql.libsonnet';

{
  local config = $._config,
  local promql = expressions(config),

  local selectBiolat(expr) =
    if config.biolatSelector == defaults.biolatSelector then expr
    else std.strReplace(expr, 'job=~"biolat.*"', config.biolatSelector),

  // The dashboard's variable is called cluster regardless of clusterLabel.
  local isVariable(field, value) = field == 'name' && value == 'cluster',
  local label(name) = if name == 'cluster' then config.clusterLabel else name,
  local adapt(field, value) =
    if std.isObject(value) then { [label(name)]: adapt(name, value[name]) for name in std.objectFields(value) }
    else if std.isArray(value) then [adapt(field, element) for element in value]
    else if !std.isString(value) || isVariable(field, value) then value
    else if field == 'expr' || field == 'query' then promql.adapt(selectBiolat(value))
    else label(std.strReplace(value, '{{cluster}}', '{{%s}}' % config.clusterLabel)),

  local complete(dashboard) = adapt('', dashboard) {
    title: config.dashboardTitlePrefix + dashboard.title,
    tags: dashboard.tags + config.dashboardTags,
  },

  grafanaDashboards+:: {
    native: { 'biolat.json': complete(import '../grafana/biolat.json') },
    classic: { 'biolat-classic.json': complete(import '../grafana/biolat-classic.json') },
  }[config.histograms],
}

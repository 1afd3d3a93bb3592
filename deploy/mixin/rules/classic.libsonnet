// Expressions of classic histograms. The same functions as in native.libsonnet.
{
  local rate(metric, by) = 'sum by (%s) (rate(%s[5m]))' % [by, metric],

  count(metric, by):: rate(metric + '_count', by),
  sum(metric, by):: rate(metric + '_sum', by),
  quantile(q, metric, by):: 'histogram_quantile(%g, %s) >= 0' % [q, rate(metric + '_bucket', by + ', le')],

  metric(name):: name + '_bucket',
  level: '_le',
  le: ', le',
}

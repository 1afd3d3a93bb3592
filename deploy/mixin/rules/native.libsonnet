// Expressions for native histograms, with the same functions as classic.libsonnet.
{
  local rate(metric, by) = 'sum by (%s) (rate(%s[5m]))' % [by, metric],

  count(metric, by):: 'histogram_count(%s)' % rate(metric, by),
  sum(metric, by):: 'histogram_sum(%s)' % rate(metric, by),
  quantile(q, metric, by):: 'histogram_quantile(%g, %s) >= 0' % [q, rate(metric, by)],

  // For recorded histograms: the rate of all observations, and of observations above a limit.
  recordedCount(histogram, by):: 'histogram_count(sum by (%s) (%s))' % [by, histogram],
  late(limit, histogram, matchers, by):: |||
    (1 - histogram_fraction(0, %(limit)s, sum by (%(by)s) (%(series)s)))
      * (histogram_count(sum by (%(by)s) (%(series)s)) > 0)
  ||| % { limit: limit, by: by, series: '%s{%s}' % [histogram, matchers] },

  // For names of recorded histograms: the metric, the suffix of the level, and the bucket label if there is one.
  metric(name):: name,
  level: '',
  le: '',
}

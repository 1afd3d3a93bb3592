// Latency of all drives of a model.
function(histograms, config) {
  local histogram = 'model_op%s:%s:rate5m' % [histograms.level, histograms.metric('biolat_device_latency_seconds')],
  local quantile(name, q) = {
    record: 'model_op:biolat_device_latency_seconds:%s_rate5m' % name,
    expr: 'histogram_quantile(%g, %s) >= 0' % [q, histogram],
  },

  name: 'biolat-models',
  rules: [
    {
      record: histogram,
      comment:: 'One histogram per model and op, for any number of drives: compute other quantiles from it.',
      expr: |||
        sum by (cluster, model, op%s) (
          rate(%s[5m])
            * on (cluster, instance, device) group_left (model)
          group by (cluster, instance, device, model) (biolat_device_info)
        )
      ||| % [histograms.le, histograms.metric('biolat_device_latency_seconds')],
    },
    quantile('p50', 0.5),
    quantile('p99', 0.99),
    quantile('p999', 0.999),
  ],
}

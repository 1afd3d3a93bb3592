// Latency over all drives of a model.
function(histograms, config) {
  local histogram(level, metric) = '%s%s:%s:rate5m' % [level, histograms.level, histograms.metric(metric)],
  local device = histogram('model_op', 'biolat_device_latency_seconds'),
  local total = histogram('model_class_op', 'biolat_total_latency_seconds'),

  local withClass = |||
    label_replace(label_replace(label_replace(label_replace(
      biolat_device_info,
      "class", "ssd", "", ""),
      "class", "nvme", "device", "nvme.*"),
      "class", "loop", "transport", "loop"),
      "class", "rotating", "rotational", "1")
  |||,

  local indented(text) = std.strReplace('\n' + std.rstripChars(text, '\n'), '\n', '\n    ') + '\n  ',

  local ofDrives(labels, metric, info) = |||
    sum by (cluster, %(labels)s, op%(le)s) (
      rate(%(metric)s[5m])
        * on (cluster, instance, device) group_left (%(labels)s)
      group by (cluster, instance, device, %(labels)s) (%(info)s)
    )
  ||| % { labels: labels, le: histograms.le, metric: histograms.metric(metric), info: info },

  local quantile(metric, name, q, histogram) = {
    record: 'model_op:%s:%s_rate5m' % [metric, name],
    expr: 'histogram_quantile(%g, %s) >= 0' % [q, histogram],
  },

  name: 'biolat-models',
  rules: [
    {
      record: device,
      comment:: 'One histogram per model and op, for any number of drives. Compute other quantiles from it.',
      expr: ofDrives('model', 'biolat_device_latency_seconds', 'biolat_device_info'),
    },
    quantile('biolat_device_latency_seconds', 'p50', 0.5, device),
    quantile('biolat_device_latency_seconds', 'p99', 0.99, device),
    quantile('biolat_device_latency_seconds', 'p999', 0.999, device),
    {
      record: total,
      comment:: 'Also by class: rotating, nvme, loop, or ssd for everything else.',
      expr: ofDrives('model, class', 'biolat_total_latency_seconds', indented(withClass)),
    },
    quantile(
      'biolat_total_latency_seconds',
      'p99',
      0.99,
      'sum by (cluster, model, op%s) (%s)' % [histograms.le, total]
    ),
  ],
}

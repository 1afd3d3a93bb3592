// Service levels: the share of reads and writes that take longer than their target, by class of device, over several windows.
local metric = 'biolat_total_latency_seconds';
local recorded(operations) = 'class_op:%s:%s' % [metric, operations];
local windows = ['30m', '1h', '6h', '3d'];

function(histograms, config) {
  local latencies = 'model_class_op%s:%s:rate5m' % [histograms.level, histograms.metric(metric)],

  local late(class, op) =
    histograms.late(config.slo.targets[class][op], latencies, 'class="%s", op="%s"' % [class, op], 'cluster, class, op'),

  name: 'biolat-slo-rates',
  rules: [
    {
      record: recorded('count_rate5m'),
      comment:: 'I/Os per second of all drives of a class, and late I/Os, which took longer than the target.',
      expr: histograms.recordedCount(latencies, 'cluster, class, op'),
    },
    {
      record: recorded('late_rate5m'),
      expr: std.join('or\n', [
        late(class, op)
        for class in std.objectFields(config.slo.targets)
        for op in std.objectFields(config.slo.targets[class])
      ]),
    },
    {
      record: recorded('late_ratio_rate5m'),
      comment:: 'The share of late I/Os. Longer windows are computed from these rates: a few series, for any number of drives.',
      expr: '%s / (%s > 0)' % [recorded('late_rate5m'), recorded('count_rate5m')],
    },
  ] + [
    {
      record: recorded('late_ratio_rate' + window),
      expr: |||
        sum_over_time(%s[%s])
          / (sum_over_time(%s[%s]) > 0)
      ||| % [recorded('late_rate5m'), window, recorded('count_rate5m'), window],
    }
    for window in windows
  ],
}

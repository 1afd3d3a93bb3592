// Figures of biolat itself.
function(histograms, config) {
  name: 'biolat-daemons',
  rules: [
    {
      record: 'instance:biolat_collect_duration_seconds:count_rate5m',
      expr: histograms.count('biolat_collect_duration_seconds', 'cluster, instance'),
    },
    {
      record: 'instance:biolat_collect_duration_seconds:p99_rate5m',
      expr: histograms.quantile(0.99, 'biolat_collect_duration_seconds', 'cluster, instance'),
    },
  ],
}

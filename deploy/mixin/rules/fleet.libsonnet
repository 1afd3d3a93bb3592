// Sums over drives, and the slowest drives: dashboards of large fleets then read few series.
function(histograms, config) {
  local sumBy(labels, series) = 'sum by (cluster, %s) (%s)' % [labels, series],

  local worst = 'instance_device:biolat_device_info:worst',
  local ofWorst(name, figure) = {
    record: '%s:worst_%s' % [name, figure],
    expr: '%s:%s and on (cluster, instance, device) %s' % [name, figure, worst],
  },

  name: 'biolat-fleet',
  rules: [
    {
      record: 'model_op:biolat_total_latency_seconds:count_rate5m',
      comment:: 'Sums over all drives of a model: a fleet total then adds up only a few series.',
      expr: sumBy('model, op', 'instance_device_op:biolat_total_latency_seconds:count_rate5m'),
    },
    { record: 'model_op:biolat_io_bytes:rate5m', expr: sumBy('model, op', 'instance_device_op:biolat_io_bytes:rate5m') },
    { record: 'model:biolat_failed_ios:rate5m', expr: sumBy('model', 'instance_device:biolat_failed_ios:rate5m') },
    {
      record: 'model_over:biolat_slow_ios:rate5m',
      expr: sumBy('model, over', 'instance_device_over:biolat_slow_ios:rate5m'),
    },
    {
      record: 'model:biolat_oldest_inflight_seconds:max',
      expr: 'max by (cluster, model) (instance_device:biolat_oldest_inflight_seconds:max)',
    },
    {
      record: 'instance_device_op:biolat_latency_seconds:topk_p99_rate5m',
      comment:: |||
        The twenty slowest drives of each op and kind (rotational or not), by device latency, or by total latency where the
        kernel does not timestamp the dispatch.
      |||,
      expr: |||
        topk by (rotational, op) (20,
          (
            instance_device_op:biolat_device_latency_seconds:p99_rate5m
            or
            instance_device_op:biolat_total_latency_seconds:p99_rate5m
              and on (cluster, instance, device) biolat_device_phase_available{phase="device"} == 0
          )
            * on (cluster, instance, device) group_left (rotational)
          group by (cluster, instance, device, rotational) (biolat_device_info)
        )
      |||,
    },
    {
      record: worst,
      comment:: 'These drives, and drives with an I/O in flight for %g s or more.' % config.worstHangSeconds,
      expr: |||
        group by (cluster, instance, device, model, rotational) (
          biolat_device_info
            and on (cluster, instance, device)
          (
            instance_device_op:biolat_latency_seconds:topk_p99_rate5m
            or
            instance_device:biolat_oldest_inflight_seconds:max >= %g
          )
        )
      ||| % config.worstHangSeconds,
    },
    ofWorst('instance_device_op:biolat_total_latency_seconds', 'count_rate5m') { comment:: 'Figures of these drives.' },
    ofWorst('instance_device_op:biolat_total_latency_seconds', 'p99_rate5m'),
    ofWorst('instance_device_op:biolat_admission_latency_seconds', 'p99_rate5m'),
    ofWorst('instance_device_op:biolat_device_latency_seconds', 'p50_rate5m'),
    ofWorst('instance_device_op:biolat_device_latency_seconds', 'p99_rate5m'),
    ofWorst('instance_device:biolat_inflight_ios', 'sum'),
  ],
}

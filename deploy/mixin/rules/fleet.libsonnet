// Sums over drives, and the slowest drives, so that dashboards of large fleets read few series.
function(histograms, config) {
  local sumBy(labels, series) = 'sum by (cluster, %s) (%s)' % [labels, series],

  name: 'biolat-fleet',
  rules: [
    {
      record: 'model_op:biolat_total_latency_seconds:count_rate5m',
      comment:: 'Sums of all drives of a model, so that a total of the fleet is one of a few series.',
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
        The twenty slowest drives of each model, op and kind, rotational or not: the slowest of any models are among them. Device
        latency; where the kernel does not record the dispatch, total latency.
      |||,
      expr: |||
        topk by (cluster, model, rotational, op) (20,
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
  ],
}

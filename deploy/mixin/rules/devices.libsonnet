// Figures per device, each with the device's model.
local withModel = import 'with_model.libsonnet';

local device = 'cluster, instance, device';
local op = device + ', op';

local rate(metric, by) = 'sum by (%s) (rate(%s[5m]))' % [by, metric];

function(histograms, config) {
  local quantile(q, metric) = '(%s)' % histograms.quantile(q, metric, op),

  local rule(record, expr, comment='') = { record: record, expr: withModel(expr), comment:: comment },

  name: 'biolat-devices',
  rules: [
    rule(
      'instance_device_op:biolat_total_latency_seconds:count_rate5m',
      histograms.count('biolat_total_latency_seconds', op)
    ),
    rule('instance_device_op:biolat_total_latency_seconds:p99_rate5m', quantile(0.99, 'biolat_total_latency_seconds')),
    rule(
      'instance_device_op:biolat_total_latency_seconds:p100_rate5m',
      quantile(1, 'biolat_total_latency_seconds'),
      comment='The slowest I/O, rounded up to its bucket bound.'
    ),
    rule(
      'instance_device_op:biolat_total_latency_seconds:sum_rate5m',
      histograms.sum('biolat_total_latency_seconds', op)
    ),
    rule(
      'instance_device_op:biolat_admission_latency_seconds:p99_rate5m',
      quantile(0.99, 'biolat_admission_latency_seconds')
    ),
    rule('instance_device_op:biolat_device_latency_seconds:p50_rate5m', quantile(0.5, 'biolat_device_latency_seconds')),
    rule('instance_device_op:biolat_device_latency_seconds:p99_rate5m', quantile(0.99, 'biolat_device_latency_seconds')),
    rule(
      'instance_device:biolat_admission_latency_seconds:sum_rate5m',
      histograms.sum('biolat_admission_latency_seconds', device),
      comment=|||
        Seconds of latency per second: by Little's law, the mean number of I/Os waiting for admission, waiting in the queue, and
        in the device. Admission exists where the kernel timestamps the submission.
      |||
    ),
    rule(
      'instance_device:biolat_queue_latency_seconds:sum_rate5m',
      histograms.sum('biolat_queue_latency_seconds', device)
    ),
    rule(
      'instance_device:biolat_device_latency_seconds:sum_rate5m',
      histograms.sum('biolat_device_latency_seconds', device)
    ),
    rule('instance_device_op:biolat_io_bytes:rate5m', rate('biolat_io_bytes_total', op)),
    rule('instance_device_op_status:biolat_io_errors:rate5m', rate('biolat_io_errors_total', op + ', status')),
    rule('instance_device:biolat_failed_ios:rate5m', rate('biolat_failed_ios_total', device)),
    rule('instance_device_over:biolat_slow_ios:rate5m', rate('biolat_slow_ios_total', device + ', over')),
    rule(
      'instance_device:biolat_inflight_ios:sum',
      'sum by (%s) (biolat_inflight_ios)' % device,
      comment='I/Os in flight now.'
    ),
    rule(
      'instance_device:biolat_oldest_inflight_seconds:max',
      'max by (%s) (biolat_oldest_inflight_seconds)' % device
    ),
  ],
}

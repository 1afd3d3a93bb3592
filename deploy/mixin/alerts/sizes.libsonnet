// The alert on sizes of I/O, from what the group biolat-fail-slow records.
local words = import '../words.libsonnet';

function(config) {
  name: 'biolat-sizes',
  interval: '4m',
  rules: [
    {
      alert: 'BlockDeviceSlowForSize',
      comment:: |||
        The mean latency of a range of sizes, compared with that of the next smaller range, whose sizes are a fourth. The size
        explains four times the latency at most; three times that is no noise. Not of rotating disks: where the data is matters
        more to them than how large it is. The replacements give each range the name of the next larger one; they are costly, so that
        only series of drives with such a latency get one.
      |||,
      expr: |||
        (
          instance_device_op_size:biolat_size_device_latency_seconds:mean_rate5m > %(slowForSizeSeconds)g
        )
          > %(slowForSizeFactor)g *
        label_replace(label_replace(label_replace(label_replace(label_replace(
          instance_device_op_size:biolat_size_device_latency_seconds:mean_rate5m{size!="gt_1MiB"}
            and on (cluster, instance, device, op) (
              instance_device_op_size:biolat_size_device_latency_seconds:mean_rate5m > %(slowForSizeSeconds)g
                and on (cluster, instance, device) biolat_device_info{rotational="0"}
            ),
          "size", "gt_1MiB", "size", "le_1MiB"),
          "size", "le_1MiB", "size", "le_256KiB"),
          "size", "le_256KiB", "size", "le_64KiB"),
          "size", "le_64KiB", "size", "le_16KiB"),
          "size", "le_16KiB", "size", "le_4KiB")
      |||,
      'for': '15m',
      labels: { severity: 'info' },
      annotations: {
        summary: '{{ $labels.device }} on {{ $labels.instance }} is slow for requests of one size',
        description: 'Its {{ $labels.op }}s of size {{ $labels.size }} take {{ $value | humanizeDuration }} on average in {{ $labels.model }}, more than %s times as long as those of the next smaller sizes, which are a fourth as large.' % words(config.slowForSizeFactor),
        runbook: 'On the node: biolat sizes -d {{ $labels.device }} 10 1',
      },
    },
  ],
}

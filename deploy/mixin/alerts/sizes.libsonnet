// The alert on I/O sizes, from recordings of the group biolat-fail-slow.
local words = import '../words.libsonnet';

function(config) {
  name: 'biolat-sizes',
  interval: '4m',
  rules: [
    {
      alert: 'BlockDeviceSlowForSize',
      comment:: |||
        Compares the mean latency of a range of sizes with the next smaller range, whose sizes are a quarter. The size
        explains four times the latency at most; three times that is not noise. Rotating disks are excluded: their latency depends
        on where the data is rather than on its size. The label_replace calls rename each range to the next larger one. They are
        costly, so only drives with such a latency go through them.
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
        description: 'Its {{ $labels.op }}s of size {{ $labels.size }} take {{ $value | humanizeDuration }} on average ({{ $labels.model }}), more than %s times as long as those of the next smaller sizes, which are a quarter as large.' % words(config.slowForSizeFactor),
        runbook: 'On the node: biolat sizes -d {{ $labels.device }} 10 1',
      },
    },
  ],
}

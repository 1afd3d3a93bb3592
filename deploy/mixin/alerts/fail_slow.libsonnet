// The alert on drives that are sick but do not fail: slower than others for the same work.
function(config) {
  // A drive's slowdown without the part that its siblings share, the drives of its model on its node.
  local alone(series) = |||
    (
      %(series)s
        / on (cluster, instance, model) group_left ()
      clamp_min(
        quantile by (cluster, instance, model) (0.5, %(series)s)
          and count by (cluster, instance, model) (%(series)s) >= %(drives)d,
        1
      )
      or %(series)s
    )
  ||| % { series: series, drives: config.failSlowMinDrives },

  local slowFirmware = |||
    (
      biolat_device_info
      and on (cluster, model, firmware) model_firmware:biolat_slowdown:ratio1h > %(failSlowFirmwareFactor)g
    )
  |||,

  local trimmed(text) = std.rstripChars(text, '\n'),

  name: 'biolat-fail-slow',
  interval: '4m',
  rules: [
    {
      alert: 'BlockDeviceFailSlow',
      comment:: |||
        One drive: many of its ops and sizes, one of them, or stalls. One of twelve is far out more often by chance, so that its
        limit is higher. What its siblings or its firmware share is an alert of its own.
      |||,
      expr: |||
        (
          %s
            > %%(failSlowFactor)g
          or
          %s
            > %%(failSlowSizeFactor)g
          or
          %s
            > %%(failSlowStallFactor)g
        )
        unless on (cluster, instance, device)
        %s
      ||| % ([
               std.strReplace(trimmed(text), '\n', '\n  ')
               for text in [
                 alone('instance_device:biolat_slowdown:typical1h'),
                 alone('instance_device:biolat_slowdown:worst1h'),
                 alone('instance_device:biolat_slowdown:stall6h'),
               ]
             ] + [trimmed(slowFirmware)]),
      'for': '15m',
      labels: { severity: 'warning', scope: 'drive' },
      annotations: {
        summary: '{{ $labels.device }} on {{ $labels.instance }} is slow for the work that it does',
        description: 'It takes {{ $value | printf "%.1f" }} times as long as other drives of its model ({{ $labels.model }}) with the same load and sizes.',
        runbook: 'smartctl -x /dev/{{ $labels.device }}: wear, temperature, media errors, link speed',
      },
    },
    {
      alert: 'BlockDeviceFailSlow',
      comment:: |||
        The drives of a node: its backplane, controller, power or cooling.
      |||,
      expr: |||
        (
          quantile by (cluster, instance, model) (0.5, instance_device:biolat_slowdown:typical1h)
            and count by (cluster, instance, model) (instance_device:biolat_slowdown:typical1h) >= %%(failSlowMinDrives)d
        )
          > %%(failSlowFactor)g
        unless on (cluster, instance, model)
        %s
      ||| % trimmed(slowFirmware),
      'for': '15m',
      labels: { severity: 'warning', scope: 'node' },
      annotations: {
        summary: 'The drives of {{ $labels.instance }} are slow for the work that they do',
        description: 'Half of its {{ $labels.model }} take {{ $value | printf "%.1f" }} times as long as those of other nodes with the same load and sizes.',
        runbook: 'On the node: dmesg --level err,warn; backplane, controller, PCIe links (lspci -vv), temperature',
      },
    },
    {
      alert: 'BlockDeviceFailSlow',
      expr: 'model_firmware:biolat_slowdown:ratio1h > %(failSlowFirmwareFactor)g',
      labels: { severity: 'warning', scope: 'firmware' },
      annotations: {
        summary: 'Firmware {{ $labels.firmware }} of {{ $labels.model }} is slower than another one',
        description: 'Its drives take {{ $value | printf "%.1f" }} times as long as those with the fastest firmware, for the same work.',
        runbook: 'Stop the roll-out of this firmware; compare its release notes',
      },
    },
    {
      alert: 'BlockDeviceFailSlow',
      comment:: |||
        A whole model, where no drive is slower than others: against itself a week ago, or a day ago for what it did not do then,
        in three quarters of what it does. It ends a week after the model became slow.
      |||,
      expr: |||
        quantile by (cluster, model) (0.25,
          model_op_size_work:biolat_size_device_latency_seconds:median_mean_rate5m
            / (
              model_op_size_work:biolat_size_device_latency_seconds:median_mean_rate5m offset 1w
              or model_op_size_work:biolat_size_device_latency_seconds:median_mean_rate5m offset 1d
            )
        ) > %(failSlowFactor)g
      |||,
      'for': '45m',
      labels: { severity: 'warning', scope: 'model' },
      annotations: {
        summary: 'All drives of model {{ $labels.model }} are slower than a week ago',
        description: 'They take {{ $value | printf "%.1f" }} times as long as a week ago, for the same work.',
        runbook: 'What changed on all of them: firmware, kernel, driver, scheduler, encryption?',
      },
    },
  ],
}

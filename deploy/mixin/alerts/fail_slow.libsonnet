// The alert on fail-slow drives: they do not fail, but are slower than others for the same work.
function(config) {
  // The median slowdown of drives that were slow in at least this many evaluations; an hour has 15.
  local slow(series, time, evaluations) =
    'quantile_over_time(0.5, %s[%s]) and count_over_time(%s[%s]) >= %d' % [series, time, series, time, evaluations],

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
        One drive: slow for four fifths of an hour, overall or in one op and size, or stalled for a fifth of six hours. If its
        siblings or its firmware share the slowdown, another alert reports it.
      |||,
      expr: |||
        (
          %s
          or
          max by (cluster, instance, device, model) (
            %s
          )
          or
          %s
        )
        unless on (cluster, instance, device)
        %s
      ||| % [
        slow('instance_device:biolat_slowdown:slow_rate5m', '1h', 12),
        slow('instance_device_op_size:biolat_size_device_latency_seconds:slow_rate5m', '1h', 12),
        slow('instance_device:biolat_slowdown:stalled_rate5m', '6h', 18),
        trimmed(slowFirmware),
      ],
      'for': '10m',
      labels: { severity: 'warning', scope: 'drive' },
      annotations: {
        summary: '{{ $labels.device }} on {{ $labels.instance }} is slower than other drives for the same work',
        description: 'It takes {{ $value | printf "%.1f" }} times as long as other drives of its model ({{ $labels.model }}) with the same load and sizes.',
        runbook: 'smartctl -x /dev/{{ $labels.device }}: wear, temperature, media errors, link speed',
      },
    },
    {
      alert: 'BlockDeviceFailSlow',
      comment:: |||
        The drives of a node: the cause is its backplane, controller, power or cooling.
      |||,
      expr: |||
        (
          %s
        )
        unless on (cluster, instance, model)
        %s
      ||| % [slow('instance:biolat_slowdown:slow_rate5m', '1h', 12), trimmed(slowFirmware)],
      'for': '10m',
      labels: { severity: 'warning', scope: 'node' },
      annotations: {
        summary: 'The drives of {{ $labels.instance }} are slower than those of other nodes for the same work',
        description: 'Half of its {{ $labels.model }} drives take {{ $value | printf "%.1f" }} times as long as those of other nodes with the same load and sizes.',
        runbook: 'On the node: dmesg --level err,warn; backplane, controller, PCIe links (lspci -vv), temperature',
      },
    },
    {
      alert: 'BlockDeviceFailSlow',
      expr: 'model_firmware:biolat_slowdown:ratio1h > %(failSlowFirmwareFactor)g',
      labels: { severity: 'warning', scope: 'firmware' },
      annotations: {
        summary: 'Firmware {{ $labels.firmware }} of {{ $labels.model }} is slower than another firmware version',
        description: 'Its drives take {{ $value | printf "%.1f" }} times as long as those with the fastest firmware for the same work.',
        runbook: 'Stop the rollout of this firmware; compare its release notes',
      },
    },
    {
      alert: 'BlockDeviceFailSlow',
      comment:: |||
        A whole model, of which no drive is slower than others: compared with the model a week ago, or a day ago for work that it
        did not do then. Three quarters of its work have to be slower. The alert ends a week after the model became slow. If half of
        its drives have %(failSlowOverloadInflight)g I/Os in the device, they are overloaded instead.
      ||| % config,
      expr: |||
        quantile by (cluster, model) (0.25,
          model_op_size_work:biolat_size_device_latency_seconds:median_mean_rate5m
            / (
              model_op_size_work:biolat_size_device_latency_seconds:median_mean_rate5m offset 1w
              or model_op_size_work:biolat_size_device_latency_seconds:median_mean_rate5m offset 1d
            )
        ) > %(failSlowModelFactor)g
          unless
        quantile by (cluster, model) (0.5, instance_device:biolat_device_latency_seconds:sum_rate5m) >= %(failSlowOverloadInflight)g
      |||,
      'for': '45m',
      labels: { severity: 'warning', scope: 'model' },
      annotations: {
        summary: 'All drives of model {{ $labels.model }} are slower than a week ago',
        description: 'They take {{ $value | printf "%.1f" }} times as long as a week ago for the same work.',
        runbook: 'What changed on all of them: firmware, kernel, driver, scheduler, encryption?',
      },
    },
  ],
}

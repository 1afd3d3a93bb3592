// The alert on drives that are sick but do not fail: slower than others for the same work.
function(config) {
  // The median of the drives of a model on a node, of five at least.
  local siblings(series) = |||
    (
      quantile by (cluster, instance, model) (0.5, %s)
      and count by (cluster, instance, model) (%s) >= %d
    )
  ||| % [series, series, config.failSlowMinDrives],

  // The slowdown that the siblings do not share.
  local alone(series) = |||
    (
      %s
        / on (cluster, instance, model) group_left ()
      clamp_min(
        quantile by (cluster, instance, model) (0.5, %s)
          and count by (cluster, instance, model) (%s) >= %d,
        1
      )
      or %s
    )
  ||| % [series, series, series, config.failSlowMinDrives, series],

  local indented(text) = std.strReplace(std.rstripChars(text, '\n'), '\n', '\n  '),
  local typical = 'instance_device:biolat_slowdown:typical1h',
  local worst = 'instance_device:biolat_slowdown:worst1h',

  local firmwares = |||
    (
      quantile by (cluster, model, firmware) (0.5,
        instance_device:biolat_slowdown:typical1h
          * on (cluster, instance, device) group_left (firmware)
        group by (cluster, instance, device, firmware) (biolat_device_info)
      )
      and
      count by (cluster, model, firmware) (
        instance_device:biolat_slowdown:typical1h
          * on (cluster, instance, device) group_left (firmware)
        group by (cluster, instance, device, firmware) (biolat_device_info)
      ) >= %(failSlowMinDrives)g
    )
  |||,

  name: 'biolat-fail-slow',
  interval: '4m',
  rules: [
    {
      alert: 'BlockDeviceFailSlow',
      comment:: |||
        One drive. Its own factor differs between healthy drives by 5 to 10 %%, so half as slow again is no chance, unless the
        drives of the model differ more: then four times their spread (1.4826 times the median deviation is a standard
        deviation). One op and size of twelve has more chances to be slow, so the factor is larger. Stalls of minutes: one
        window in ten within six hours. What all siblings share is the node's fault.
      |||,
      expr: |||
        (
          %s
            > on (cluster, model) group_left ()
          clamp_min(
            exp(%%(failSlowSpread)g * 1.4826 * quantile by (cluster, model) (0.5, abs(ln(instance_device:biolat_slowdown:typical1h)))),
            %%(failSlowFactor)g
          )
        )
        or
        (
          %s
            > on (cluster, model) group_left ()
          %%(failSlowSizeFactor)g / %%(failSlowFactor)g
            * clamp_min(
              exp(%%(failSlowSpread)g * 1.4826 * quantile by (cluster, model) (0.5, abs(ln(instance_device:biolat_slowdown:typical1h)))),
              %%(failSlowFactor)g
            )
        )
        or
        %s > %%(failSlowStallFactor)g
      ||| % [
        indented(alone(typical)),
        indented(alone(worst)),
        alone('quantile_over_time(0.9, instance_device:biolat_slowdown:worst[6h])'),
      ],
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
        All drives of a node: its backplane, controller, power or cooling.
      |||,
      expr: '%s > %%(failSlowFactor)g' % std.rstripChars(siblings(typical), '\n'),
      labels: { severity: 'warning', scope: 'node' },
      annotations: {
        summary: 'The drives of {{ $labels.instance }} are slow for the work that they do',
        description: 'Half of its {{ $labels.model }} take {{ $value | printf "%.1f" }} times as long as those of other nodes with the same load and sizes.',
        runbook: 'On the node: dmesg --level err,warn; backplane, controller, PCIe links (lspci -vv), temperature',
      },
    },
    {
      alert: 'BlockDeviceFailSlow',
      comment:: |||
        A firmware: the median of its drives, against the fastest firmware of the model.
      |||,
      expr: |||
        %s
          / on (cluster, model) group_left ()
        min by (cluster, model)
        %s
          > %%(failSlowFirmwareFactor)g
      ||| % [std.rstripChars(firmwares, '\n'), std.rstripChars(firmwares, '\n')],
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
        A whole model, against itself a week ago, at the same load and sizes: three quarters of what it does is slower.
      |||,
      expr: |||
        quantile by (cluster, model) (0.25,
          model_op_size_work:biolat_size_device_latency_seconds:median_mean_rate5m
            / (model_op_size_work:biolat_size_device_latency_seconds:median_mean_rate5m offset 1w)
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

// The alert on service levels: a class of devices uses up its error budget too fast. Two windows each: the long one for what it
// means, the short one so that the alert ends soon after its cause.
local late(window) = 'class_op:biolat_total_latency_seconds:late_ratio_rate' + window;

function(config) {
  local burns(rate, long, short) = |||
    %s > %g * (1 - %g)
      and %s > %g * (1 - %g)
  ||| % [late(long), rate, config.slo.objective, late(short), rate, config.slo.objective],

  local alert(severity, comment, expr, description) = {
    alert: 'BlockDeviceLatencyBudgetBurn',
    comment:: comment,
    expr: std.strReplace(expr, '%', '%%'),
    labels: { severity: severity },
    annotations: {
      summary: '{{ $labels.op }}s of {{ $labels.class }} drives use up their latency budget too fast',
      description: description,
      runbook: 'On the dashboard, choose the op: the worst drives, and p99 by model',
    },
  },

  name: 'biolat-slo',
  rules: [
    alert(
      'critical',
      'Burn rates of the Site Reliability Workbook: 2 % of the budget of 30 days within an hour, or 5 % within six.',
      burns(14.4, '1h', '5m') + 'or\n' + burns(6, '6h', '30m'),
      '{{ $value | humanizePercentage }} took longer than the target within one hour, or within six.',
    ),
    alert(
      'warning',
      '10 % of the budget within three days: at this rate all of it is used up in 30 days.',
      burns(1, '3d', '6h'),
      '{{ $value | humanizePercentage }} took longer than the target within three days.',
    ),
  ],
}

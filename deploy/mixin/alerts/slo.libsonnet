// The alert on service levels: a class of devices uses up its error budget too fast. Each severity has two windows: the long one
// measures the burn rate, the short one ends the alert soon after its cause.
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
      runbook: 'On the dashboard, choose the op and look at Worst drives now and p99 by model',
    },
  },

  name: 'biolat-slo',
  rules: [
    alert(
      'critical',
      'Burn rates of the Site Reliability Workbook: 2 % of the 30-day budget in an hour, or 5 % in six.',
      burns(14.4, '1h', '5m') + 'or\n' + burns(6, '6h', '30m'),
      '{{ $value | humanizePercentage }} took longer than the target in the last hour, or in the last six.',
    ),
    alert(
      'warning',
      '10 % of the budget in three days: at this rate all of it is used up in 30 days.',
      burns(1, '3d', '6h'),
      '{{ $value | humanizePercentage }} took longer than the target in the last three days.',
    ),
  ],
}

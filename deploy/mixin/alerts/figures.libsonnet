// Alerts on biolat itself: whether it runs, and whether its figures are right.
function(config) {
  name: 'biolat-figures',
  rules: [
    {
      alert: 'BiolatDown',
      expr: 'up{%(biolatSelector)s} == 0',
      'for': '5m',
      labels: { severity: 'warning' },
      annotations: {
        summary: 'biolat on {{ $labels.instance }} cannot be scraped',
        description: 'The latency of its drives is unknown.',
        runbook: 'On the node: systemctl status biolat; journalctl -u biolat -n 50',
      },
    },
    {
      alert: 'BiolatAbsent',
      expr: 'absent(up{%(biolatSelector)s})',
      'for': '15m',
      labels: { severity: 'warning' },
      annotations: {
        summary: 'Prometheus has no biolat target',
        description: 'There is no target with %s; none of these alerts can fire.' % config.biolatSelector,
        runbook: 'Look at Status > Target health in Prometheus, then at scrape_configs',
      },
    },
    {
      alert: 'BiolatStale',
      comment:: |||
        Twice the longest --interval that the daemon accepts.
      |||,
      expr: 'timestamp(biolat_collect_timestamp_seconds) - biolat_collect_timestamp_seconds > %(staleSeconds)g',
      'for': '5m',
      labels: { severity: 'warning' },
      annotations: {
        summary: 'biolat on {{ $labels.instance }} serves stale figures',
        description: 'They are {{ $value | humanizeDuration }} old, or the clocks of the node and of Prometheus differ by that much.',
        runbook: 'On the node: journalctl -u biolat -n 50, and compare date -u',
      },
    },
    {
      alert: 'BiolatCollectorFailing',
      expr: 'increase(biolat_collect_failures_total[15m]) >= %(collectFailures)g',
      labels: { severity: 'warning' },
      annotations: {
        summary: "biolat on {{ $labels.instance }} cannot read the kernel's counters",
        description: '{{ $value | printf "%.0f" }} collections failed in the last 15 minutes; biolat serves the last good figures.',
        runbook: 'On the node: journalctl -u biolat -n 50 names the reason',
      },
    },
    {
      alert: 'BiolatCollectorOverrunning',
      expr: |||
        sum by (cluster, instance) (rate(biolat_collect_overruns_total[5m]))
          / instance:biolat_collect_duration_seconds:count_rate5m > %(overrunsRatio)g
      |||,
      'for': '15m',
      labels: { severity: 'info' },
      annotations: {
        summary: 'biolat on {{ $labels.instance }} takes longer than its interval to read the counters',
        description: '{{ $value | humanizePercentage }} of its collections are late: its figures are older than they should be.',
        runbook: 'Is the node short of CPU? Otherwise set a longer --interval',
      },
    },
    {
      alert: 'BiolatCompletionsLost',
      comment:: |||
        passthrough and no_disk are expected; BiolatDeviceNotMeasured reports iostats_off.
      |||,
      expr: |||
        sum by (cluster, instance, reason) (
          rate(biolat_lost_completions_total{reason=~"no_room|clock|recursion|unknown_device"}[15m])
        )
          / on (cluster, instance) group_left ()
        sum by (cluster, instance) (instance_device_op:biolat_total_latency_seconds:count_rate5m)
          > %(lostRatio)g
      |||,
      'for': '15m',
      labels: { severity: 'warning' },
      annotations: {
        summary: 'biolat on {{ $labels.instance }} loses completions ({{ $labels.reason }})',
        description: 'Lost completions amount to {{ $value | humanizePercentage }} of the counted ones.',
        runbook: 'On the node: journalctl -u biolat names the series of no_room, and says whether the second program was attached (recursion)',
      },
    },
    {
      alert: 'BiolatCompletionsUnseen',
      expr: |||
        sum by (cluster, instance, device) (rate(biolat_unseen_ios_total[15m]))
          / sum by (cluster, instance, device) (instance_device_op:biolat_total_latency_seconds:count_rate5m)
          > %(missedRatio)g
      |||,
      'for': '15m',
      labels: { severity: 'warning' },
      annotations: {
        summary: 'biolat on {{ $labels.instance }} is missing I/O of {{ $labels.device }}',
        description: 'Missed completions amount to {{ $value | humanizePercentage }} of the counted ones.',
        runbook: 'Is another tracer on block_rq_complete? bpftool perf',
      },
    },
    {
      alert: 'BiolatWorkloadsWithoutRoom',
      expr: 'rate(biolat_workload_no_room_ios_total[15m]) > 0',
      'for': '15m',
      labels: { severity: 'info' },
      annotations: {
        summary: 'biolat on {{ $labels.instance }} has no room for every cgroup',
        description: '{{ $value | humanize }} I/Os per second are counted as cgroup "other" instead of under their own.',
        runbook: 'Raise --workloads on this node',
      },
    },
    {
      alert: 'BiolatDeviceNotMeasured',
      expr: 'biolat_device_phase_available{phase="total"} == 0',
      'for': '15m',
      labels: { severity: 'warning' },
      annotations: {
        summary: '{{ $labels.device }} on {{ $labels.instance }} is not measured',
        description: 'Its queue/iostats is 0, so the kernel does not timestamp or account its I/O.',
        runbook: 'echo 1 > /sys/block/{{ $labels.device }}/queue/iostats',
      },
    },
    {
      alert: 'BiolatPhaseNotAvailable',
      expr: |||
        biolat_device_phase_available{phase="device"} == 0
        unless on (cluster, instance, device) biolat_device_phase_available{phase="total"} == 0
      |||,
      'for': '1h',
      labels: { severity: 'info' },
      annotations: {
        summary: '{{ $labels.device }} on {{ $labels.instance }} has only a total latency',
        description: 'The kernel does not timestamp the dispatch of its requests to the driver. There is no queue or device latency, and alerts that compare drives with others or with their past ignore this one.',
        runbook: 'Before you turn on writeback throttling, read the warning about it',
      },
    },
  ],
}

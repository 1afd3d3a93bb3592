// Alerts on drives and their paths.
local words = import '../words.libsonnet';

function(config) {
  name: 'biolat-drives',
  rules: [
    {
      alert: 'BlockDeviceHung',
      comment:: |||
        After 30 s most drivers give a command up. A shorter hang that a reset ends is BlockDeviceStalled.
        last_over_time: a failed scrape does not end the alert. A lower bound (exact is 0, else absent) is the time with I/O in
        flight and no completion. It says nothing where the kernel does not account completions, but many kernels count the I/O
        in flight.
      |||,
      expr: |||
        max by (cluster, instance, device) (last_over_time(biolat_oldest_inflight_seconds[2m])) > %(hungSeconds)g
        unless on (cluster, instance, device) (
          last_over_time(biolat_oldest_inflight_exact[2m]) == 0
          and on (cluster, instance, device) last_over_time(biolat_device_phase_available{phase="total"}[2m]) == 0
        )
      |||,
      'for': '30s',
      labels: { severity: 'critical' },
      annotations: {
        summary: '{{ $labels.device }} on {{ $labels.instance }} hangs',
        description: 'An I/O has been in flight for at least {{ $value | humanizeDuration }} and has not completed.',
        runbook: 'On the node: dmesg --level err,warn | grep {{ $labels.device }}',
      },
    },
    {
      alert: 'BlockDeviceStalled',
      comment:: |||
        No drive takes 8 s: one that spins stops trying to read a bad sector after about 7 s. Over 1 s is unusual only where
        nothing spins, as a full queue of 256 I/Os takes a spinning disk about two seconds. Discards may take that long on
        any drive, so a read, a write or a flush has to be among them.
      |||,
      expr: |||
        sum by (cluster, instance, device) (increase(biolat_slow_ios_total{over="8"}[15m])) > 0
        or
        sum by (cluster, instance, device) (increase(biolat_slow_ios_total{over="1"}[15m])) >= 10
          and on (cluster, instance, device) biolat_device_info{rotational="0"}
          and on (cluster, instance, device)
        max_over_time(instance_device_op:biolat_total_latency_seconds:p100_rate5m{op=~"read|write|flush"}[15m]) > 1
      |||,
      labels: { severity: 'warning' },
      annotations: {
        summary: '{{ $labels.device }} on {{ $labels.instance }} stalls',
        description: '{{ $value | printf "%.0f" }} I/Os took seconds within 15 minutes.',
        runbook: 'On the node: curl -s localhost:9976/api/v1/slow',
      },
    },
    {
      alert: 'BlockDeviceErrors',
      comment:: |||
        Without notsupp, again and resource, which the kernel and file systems cause and handle themselves, and without
        commands from user space, of which a drive may reject any.
        A status has no series before its first errors, and increase() ignores the first value of a series. All errors of a
        series belong to these 15 minutes if the daemon started within them, or if the series was not there 15 minutes ago and
        biolat_failed_ios_total, which every device has from its start, has grown since or was not there either, although
        the daemon was. What Prometheus scrapes for the first time from a daemon that has run for long is of unknown age.
      |||,
      expr: |||
        sum by (cluster, instance, device, op, status) (
          biolat_io_errors_total{
            op!~"%(ignoredErrorOps)s", status!~"%(ignoredErrorStatuses)s"
          }
            and on (cluster, instance) time() - process_start_time_seconds{%(biolatSelector)s} < 900
          or
          (
            biolat_io_errors_total{
              op!~"%(ignoredErrorOps)s", status!~"%(ignoredErrorStatuses)s"
            }
              unless biolat_io_errors_total offset 15m
          )
            and on (cluster, instance, device) (
              increase(biolat_failed_ios_total[15m]) > 0
              or
              (biolat_failed_ios_total unless biolat_failed_ios_total offset 15m)
                and on (cluster, instance) biolat_build_info offset 15m
            )
          or
          increase(
            biolat_io_errors_total{
              op!~"%(ignoredErrorOps)s", status!~"%(ignoredErrorStatuses)s"
            }[15m]
          )
        ) > 0
      |||,
      labels: { severity: 'warning' },
      annotations: {
        summary: '{{ $labels.device }} on {{ $labels.instance }} fails I/O',
        description: '{{ $value | printf "%.0f" }} I/Os of op {{ $labels.op }} failed with {{ $labels.status }} within 15 minutes.',
        runbook: 'On the node: curl -s localhost:9976/api/v1/slow; dmesg --level err,warn | grep {{ $labels.device }}',
      },
    },
    {
      alert: 'BlockDeviceErrorsMany',
      expr: |||
        sum by (cluster, instance, device, model) (
          instance_device_op_status:biolat_io_errors:rate5m{
            op!~"%(ignoredErrorOps)s", status!~"%(ignoredErrorStatuses)s"
          }
        )
          / sum by (cluster, instance, device, model) (instance_device_op:biolat_total_latency_seconds:count_rate5m)
          > %(errorsRatio)g
      |||,
      'for': '5m',
      labels: { severity: 'critical' },
      annotations: {
        summary: '{{ $labels.device }} on {{ $labels.instance }} fails {{ $value | humanizePercentage }} of its I/O',
        description: 'More than %g %% of the I/O on {{ $labels.device }} ({{ $labels.model }}) has failed for five minutes.' % (100 * config.errorsRatio),
        runbook: 'Take the drive out of service, then smartctl -x /dev/{{ $labels.device }}',
      },
    },
    {
      alert: 'BlockDeviceSlowerThanItsPast',
      comment:: |||
        What took as long a week ago, such as a weekly scrub, is expected. Below 2 ms few users notice, and below one
        I/O per second a 99th percentile means nothing. Classic histograms have buckets of a factor of four: a p99 that moves
        just across a bound seems four times as long, so another factor holds for what recording-classic.yml records.
        Where a model has many drives, BlockDeviceFailSlow compares those that do the same work, with far fewer false alarms.
      |||,
      expr: |||
        (
          instance_device_op:biolat_device_latency_seconds:p99_rate5m{op=~"read|write"}
            > scalar(%(slowerThanPastClassicFactor)g * group(model_op_le:biolat_device_latency_seconds_bucket:rate5m) or vector(%(slowerThanPastFactor)g))
              * avg_over_time(instance_device_op:biolat_device_latency_seconds:p99_rate5m{op=~"read|write"}[1h] offset 1d)
          unless
          instance_device_op:biolat_device_latency_seconds:p99_rate5m
            <= scalar(%(slowerThanPastClassicFactor)g * group(model_op_le:biolat_device_latency_seconds_bucket:rate5m) or vector(%(slowerThanPastFactor)g))
              * avg_over_time(instance_device_op:biolat_device_latency_seconds:p99_rate5m[1h] offset 1w)
        ) > %(minLatencySeconds)g
        and instance_device_op:biolat_total_latency_seconds:count_rate5m >= 1
        unless on (cluster, model)
        count by (cluster, model) (biolat_device_info{model!=""}) >= %(manyDrives)d
      |||,
      'for': '15m',
      labels: { severity: 'warning' },
      annotations: {
        summary: '{{ $labels.device }} on {{ $labels.instance }} is %s times as slow as a day and a week ago' % words(config.slowerThanPastFactor),
        description: 'The p99 device latency of its {{ $labels.op }}s is now {{ $value | humanizeDuration }} ({{ $labels.model }}).',
        runbook: 'Look at its IOPS and throughput on the dashboard: more load, or the same?',
      },
    },
    {
      alert: 'BlockDeviceSlowerThanSiblings',
      comment:: |||
        Siblings are drives of one model that do the same op. With two drives neither can be three times the median. The
        factor, and what is left to BlockDeviceFailSlow, are as above.
      |||,
      expr: |||
        (
          instance_device_op:biolat_device_latency_seconds:p99_rate5m{model!="",op=~"read|write"} > %(minLatencySeconds)g
          and instance_device_op:biolat_total_latency_seconds:count_rate5m >= 1
        )
          > on (cluster, model, op) group_left ()
        scalar(%(slowerThanSiblingsClassicFactor)g * group(model_op_le:biolat_device_latency_seconds_bucket:rate5m) or vector(%(slowerThanSiblingsFactor)g))
          * quantile by (cluster, model, op) (0.5, instance_device_op:biolat_device_latency_seconds:p99_rate5m)
        unless on (cluster, model)
        count by (cluster, model) (biolat_device_info{model!=""}) >= %(manyDrives)d
      |||,
      'for': '15m',
      labels: { severity: 'warning' },
      annotations: {
        summary: '{{ $labels.device }} on {{ $labels.instance }} is slower than other drives of its model',
        description: 'The p99 device latency of its {{ $labels.op }}s is {{ $value | humanizeDuration }}, more than %s times the median of {{ $labels.model }}.' % words(config.slowerThanSiblingsFactor),
        runbook: 'smartctl -x /dev/{{ $labels.device }}: wear, temperature, media errors, firmware',
      },
    },
    {
      alert: 'BlockDeviceFlushSlow',
      comment:: |||
        A flush of an SSD takes up to some 30 ms, without a volatile cache under 1 ms; a spinning disk has to write its cache
        to the disk. Each fsync waits for one.
      |||,
      expr: |||
        (
          instance_device_op:biolat_total_latency_seconds:p99_rate5m{op="flush"} > %(flushSlowRotationalSeconds)g
          or
          instance_device_op:biolat_total_latency_seconds:p99_rate5m{op="flush"} > %(flushSlowSeconds)g
            and on (cluster, instance, device) biolat_device_info{rotational="0"}
        )
        and instance_device_op:biolat_total_latency_seconds:count_rate5m >= 0.1
      |||,
      'for': '15m',
      labels: { severity: 'warning' },
      annotations: {
        summary: '{{ $labels.device }} on {{ $labels.instance }} flushes slowly',
        description: 'The p99 latency of its flushes is {{ $value | humanizeDuration }} ({{ $labels.model }}); each fsync waits for one.',
        runbook: 'Look at the panels Flushes and Flush latency: more flushes, or slower ones?',
      },
    },
    {
      alert: 'BlockDeviceFlushStorm',
      comment:: |||
        Seconds of flushes per second are the share of its time that the drive flushes: fair to slow and fast drives, which a
        number of flushes is not. A few slow flushes beside many writes are BlockDeviceFlushSlow. Programs that call fsync at
        the same time share a flush: a storm of many programs has few flushes per write, but more than ten per second.
      |||,
      expr: |||
        sum by (cluster, instance, device, model) (
          instance_device_op:biolat_total_latency_seconds:sum_rate5m{op="flush"}
        ) > %(flushStormShare)g
        and
        (
          sum by (cluster, instance, device, model) (
            instance_device_op:biolat_total_latency_seconds:count_rate5m{op="flush"}
          ) > 10
          or
          sum by (cluster, instance, device, model) (
            instance_device_op:biolat_total_latency_seconds:count_rate5m{op="flush"}
          )
            > 0.1
              * sum by (cluster, instance, device, model) (
                instance_device_op:biolat_total_latency_seconds:count_rate5m{op="write"}
              )
        )
      |||,
      'for': '15m',
      labels: { severity: 'warning' },
      annotations: {
        summary: '{{ $labels.device }} on {{ $labels.instance }} spends its time with flushes',
        description: 'On average {{ $value | printf "%.1f" }} flushes are in progress at any time, and there are more than ten per second or more than one for every ten writes.',
        runbook: 'Who calls fsync: bpftrace, or the logs and metrics of the databases on the node',
      },
    },
    {
      alert: 'BlockDeviceSaturated',
      comment:: |||
        At least one I/O in the device at all times, and I/O waits for longer than the drive then takes: for admission, where
        the kernel keeps the timestamp of that, and in the queue. Without a dispatch timestamp the total is the drive's time.
      |||,
      expr: |||
        (
          (
            instance_device:biolat_queue_latency_seconds:sum_rate5m
              + instance_device:biolat_admission_latency_seconds:sum_rate5m
            or instance_device:biolat_queue_latency_seconds:sum_rate5m
          )
            / (
              instance_device:biolat_device_latency_seconds:sum_rate5m > 0
              or
              sum by (cluster, instance, device, model) (instance_device_op:biolat_total_latency_seconds:sum_rate5m)
            )
        ) > %(saturatedRatio)g
        and (
          instance_device:biolat_device_latency_seconds:sum_rate5m > 0
          or
          sum by (cluster, instance, device, model) (instance_device_op:biolat_total_latency_seconds:sum_rate5m)
        ) >= 1
      |||,
      'for': '15m',
      labels: { severity: 'warning' },
      annotations: {
        summary: '{{ $labels.device }} on {{ $labels.instance }} gets more I/O than it can handle',
        description: 'I/O waits for admission and in the queue {{ $value | printf "%.1f" }} times as long as the drive then takes.',
        runbook: 'On the node: biolat who 10 1 names who does the I/O',
      },
    },
    {
      alert: 'BlockDeviceSaturated',
      comment:: |||
        Without a scheduler I/O waits for a free tag, which is admission. Where the kernel keeps no timestamp of that, the
        drive's tags are all in use if the number of I/Os in flight is high and does not vary: it is at its limit.
      |||,
      expr: |||
        min_over_time(instance_device:biolat_inflight_ios:sum[5m]) >= 16
          and
        min_over_time(instance_device:biolat_inflight_ios:sum[5m])
          > 0.9 * max_over_time(instance_device:biolat_inflight_ios:sum[5m])
        and on (cluster, instance, device) biolat_device_phase_available{phase="admission"} == 0
        unless
        instance_device:biolat_queue_latency_seconds:sum_rate5m > 0.1 * instance_device:biolat_device_latency_seconds:sum_rate5m
        and
        sum by (cluster, instance, device, model) (instance_device_op:biolat_total_latency_seconds:sum_rate5m) >= 1
      |||,
      'for': '15m',
      labels: { severity: 'info', sign: 'depth' },
      annotations: {
        summary: '{{ $labels.device }} on {{ $labels.instance }} may have as many I/Os in flight as it can take',
        description: 'For 15 minutes {{ $value | printf "%.0f" }} I/Os or a few more have been in flight at all times. How long others wait for them is not measured on this kernel.',
        runbook: 'cat /sys/block/{{ $labels.device }}/queue/nr_requests: is that the number in flight?',
      },
    },
    {
      alert: 'BlockDeviceCompletionsPiledUp',
      comment:: |||
        At 50,000 I/Os per second a CPU has 20 µs for each: the interrupt, the driver, and what the file system does at the end.
        A single busy thread on a drive with a queue per CPU looks the same and is no fault, so it is for information.
      |||,
      expr: |||
        (
          sum by (cluster, instance, device, model) (instance_device_op:biolat_total_latency_seconds:count_rate5m)
            * on (cluster, instance, device) group_left ()
          max by (cluster, instance, device) (biolat_completion_cpu_share_max)
        ) > %(completionsPerCPU)g
        and on (cluster, instance, device) biolat_completion_cpus < 2
        and on (cluster, instance) biolat_online_cpus >= 8
      |||,
      'for': '15m',
      labels: { severity: 'info' },
      annotations: {
        summary: 'One CPU of {{ $labels.instance }} completes most I/O of {{ $labels.device }}',
        description: 'It completes {{ $value | printf "%.0f" }} I/Os per second of {{ $labels.device }} ({{ $labels.model }}) and may be its limit, while other CPUs complete few or none.',
        runbook: 'On the node: ls /sys/block/{{ $labels.device }}/mq; grep . /sys/block/{{ $labels.device }}/mq/*/cpu_list',
      },
    },
    {
      alert: 'BlockPathDown',
      comment:: |||
        The live paths of a multipath device that has fewer of them than within the last hour, or a path that is not live.
        With active/passive storage, the paths over the other controller are always inaccessible.
        The kernel removes a path that stays away. A device that lost all paths together was detached.
      |||,
      expr: |||
        sum by (cluster, instance, path_of) (biolat_path_info{state="live"} or 0 * biolat_path_info)
          < max_over_time(sum by (cluster, instance, path_of) (biolat_path_info{state="live"})[1h:1m])
        or
        sum by (cluster, instance, path_of) (biolat_path_info{state="live"} or 0 * biolat_path_info)
          and on (cluster, instance, path_of) biolat_path_info{state!~"live|unknown|inaccessible|change"}
      |||,
      'for': '1m',
      labels: { severity: 'warning' },
      annotations: {
        summary: '{{ $labels.path_of }} on {{ $labels.instance }} has lost a path',
        description: 'Live paths left: {{ $value }}. Without any, I/O waits or fails.',
        runbook: 'On the node: nvme list-subsys, or multipath -ll {{ $labels.path_of }}',
      },
    },
  ],
}

// Alerts on drives and their paths.
local words = import '../words.libsonnet';

function(config) {
  name: 'biolat-drives',
  rules: [
    {
      alert: 'BlockDeviceHung',
      comment:: |||
        Most drivers give up on a command after 30 s. A shorter hang that a reset ends is BlockDeviceStalled.
        last_over_time keeps the alert firing through a failed scrape. A lower bound (exact is 0; otherwise it is absent) is the
        time with I/O in flight and no completion. It is ignored where the kernel does not account completions: many kernels
        count the I/O in flight there.
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
        summary: '{{ $labels.device }} on {{ $labels.instance }} is hung',
        description: 'An I/O has been in flight for at least {{ $value | humanizeDuration }} and has not completed.',
        runbook: 'On the node: dmesg --level err,warn | grep {{ $labels.device }}',
      },
    },
    {
      alert: 'BlockDeviceStalled',
      comment:: |||
        No healthy drive takes 8 s: a spinning disk gives up on a bad sector after about 7 s. Taking 1 s is unusual only for
        drives that do not spin, because a spinning disk needs about two seconds for a full queue of 256 I/Os. Discards can take
        that long on any drive, so at least one read, write or flush has to be among the slow I/Os.
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
        summary: '{{ $labels.device }} on {{ $labels.instance }} is stalling',
        description: '{{ $value | printf "%.0f" }} I/Os took seconds to complete in the last 15 minutes.',
        runbook: 'On the node: curl -s localhost:9976/api/v1/slow',
      },
    },
    {
      alert: 'BlockDeviceErrors',
      comment:: |||
        Ignores notsupp, again and resource, which the kernel and file systems cause and handle themselves, and commands from
        user space, because a drive may reject any of them.
        A status has no series before its first error, and increase() ignores the first value of a series. So all errors of a
        series are counted if the daemon started in the last 15 minutes. They are also counted if the series did not exist 15
        minutes ago, and biolat_failed_ios_total, which every device has from the start, has grown since, or did not exist either
        although the daemon was scraped. Errors in the first scrape of a daemon that has run for longer are of unknown age.
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
        summary: '{{ $labels.device }} on {{ $labels.instance }} is failing I/O',
        description: '{{ $value | printf "%.0f" }} {{ $labels.op }} I/Os failed with status {{ $labels.status }} in the last 15 minutes.',
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
        summary: '{{ $labels.device }} on {{ $labels.instance }} is failing {{ $value | humanizePercentage }} of its I/O',
        description: 'More than %g %% of the I/O on {{ $labels.device }} ({{ $labels.model }}) has failed for five minutes.' % (100 * config.errorsRatio),
        runbook: 'Take the drive out of service, then smartctl -x /dev/{{ $labels.device }}',
      },
    },
    {
      alert: 'BlockDeviceSlowerThanItsPast',
      comment:: |||
        The comparison with a week ago excludes weekly jobs such as a scrub. Below 2 ms few users notice, and below one I/O per
        second a 99th percentile means nothing. Classic buckets span a factor of four, so a p99 that crosses a bound seems to
        quadruple: recordings of recording-classic.yml have a larger factor. Models with many drives are left to
        BlockDeviceFailSlow, which compares drives that do the same work and has far fewer false alarms.
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
        count by (cluster, model) (biolat_device_info{model!="", kind=~"drive|"}) >= %(manyDrives)d
      |||,
      'for': '15m',
      labels: { severity: 'warning' },
      annotations: {
        summary: '{{ $labels.device }} on {{ $labels.instance }} is %s times as slow as a day and a week ago' % words(config.slowerThanPastFactor),
        description: 'The p99 device latency of its {{ $labels.op }}s is now {{ $value | humanizeDuration }} ({{ $labels.model }}).',
        runbook: 'On the dashboard: have its IOPS and throughput grown too?',
      },
    },
    {
      alert: 'BlockDeviceSlowerThanSiblings',
      comment:: |||
        Siblings are drives of one model with I/O of the same op. With two drives, neither can be three times the median. The
        factor for classic histograms and the exclusion of large models are as above.
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
        count by (cluster, model) (biolat_device_info{model!="", kind=~"drive|"}) >= %(manyDrives)d
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
        A flush takes an SSD up to about 30 ms, or less than 1 ms without a volatile cache. A spinning disk has to write out its
        cache. Each fsync waits for a flush.
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
        summary: '{{ $labels.device }} on {{ $labels.instance }} is slow to flush',
        description: 'The p99 latency of its flushes is {{ $value | humanizeDuration }} ({{ $labels.model }}); each fsync waits for one.',
        runbook: 'On the dashboard, Flushes and Flush latency: more flushes, or slower ones?',
      },
    },
    {
      alert: 'BlockDeviceFlushStorm',
      comment:: |||
        Seconds of flushes per second are the share of its time that the drive spends on flushes. Unlike a number of flushes,
        that suits slow and fast drives alike. A few slow flushes beside many writes are BlockDeviceFlushSlow. Programs that call
        fsync at the same time share a flush, so a storm from many programs has few flushes per write, but more than ten per
        second.
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
        summary: '{{ $labels.device }} on {{ $labels.instance }} spends most of its time on flushes',
        description: 'On average {{ $value | printf "%.1f" }} flushes are in progress, and there are more than ten per second or more than one for every ten writes.',
        runbook: 'Find who calls fsync: bpftrace, or the logs and metrics of the databases on the node',
      },
    },
    {
      alert: 'BlockDeviceSaturated',
      comment:: |||
        The device always has at least one I/O, and I/Os wait longer than the drive then takes: in the queue, and for admission
        where the kernel timestamps it. Without a dispatch timestamp, the total latency stands for the device latency.
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
        runbook: 'On the node: biolat who 10 1 shows who does the I/O',
      },
    },
    {
      alert: 'BlockDeviceSaturated',
      comment:: |||
        Where the kernel does not timestamp admission, Linux 7.3 and later show how often tasks sleep for a free tag, but not for
        how long. A task that sleeps again for the same I/O counts twice.
      |||,
      expr: |||
        sum by (cluster, instance, device, pool) (rate(biolat_tag_waits_total{pool!="reserved"}[5m]))
          > on (cluster, instance, device) group_left ()
        0.1 * sum by (cluster, instance, device) (instance_device_op:biolat_total_latency_seconds:count_rate5m)
        and on (cluster, instance, device) biolat_device_phase_available{phase="admission"} == 0
      |||,
      'for': '15m',
      labels: { severity: 'info', sign: 'tags' },
      annotations: {
        summary: '{{ $labels.device }} on {{ $labels.instance }} gets more I/O than the tags of its {{ $labels.pool }} allow',
        description: 'Tasks sleep {{ $value | printf "%.0f" }} times a second until a tag of the {{ $labels.pool }} is free.',
        runbook: 'On the node: biolat 10 says how many tags there are; biolat who 10 1 shows who does the I/O',
      },
    },
    {
      alert: 'BlockDeviceSaturated',
      comment:: |||
        Without a scheduler I/O waits for a free tag, which is part of admission. Where the kernel neither timestamps admission
        nor shows the wait for a tag, a high and constant number of I/Os in flight suggests that all tags of the drive are in
        use.
      |||,
      expr: |||
        min_over_time(instance_device:biolat_inflight_ios:sum[5m]) >= 16
          and
        min_over_time(instance_device:biolat_inflight_ios:sum[5m])
          > 0.9 * max_over_time(instance_device:biolat_inflight_ios:sum[5m])
        and on (cluster, instance, device) biolat_device_phase_available{phase="admission"} == 0
        unless on (cluster, instance) biolat_lost_tag_waits_total
        unless
        instance_device:biolat_queue_latency_seconds:sum_rate5m > 0.1 * instance_device:biolat_device_latency_seconds:sum_rate5m
        and
        sum by (cluster, instance, device, model) (instance_device_op:biolat_total_latency_seconds:sum_rate5m) >= 1
      |||,
      'for': '15m',
      labels: { severity: 'info', sign: 'depth' },
      annotations: {
        summary: '{{ $labels.device }} on {{ $labels.instance }} may be at its limit of I/Os in flight',
        description: 'At least {{ $value | printf "%.0f" }} I/Os have been in flight at all times for 15 minutes. This kernel does not show the wait for a free tag.',
        runbook: 'cat /sys/block/{{ $labels.device }}/queue/nr_requests: is that the number in flight?',
      },
    },
    {
      alert: 'BlockDeviceCompletionsPiledUp',
      comment:: |||
        At 50,000 I/Os per second a CPU has 20 µs for each: for the interrupt, the driver, and the file system's completion work.
        The severity is info because one busy thread on a drive with a queue per CPU looks the same and is harmless.
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
        summary: 'One CPU on {{ $labels.instance }} completes most of the I/O of {{ $labels.device }}',
        description: 'It completes {{ $value | printf "%.0f" }} I/Os per second for {{ $labels.device }} ({{ $labels.model }}) and may be limiting it, while other CPUs complete few or none.',
        runbook: 'On the node: ls /sys/block/{{ $labels.device }}/mq; grep . /sys/block/{{ $labels.device }}/mq/*/cpu_list',
      },
    },
    {
      alert: 'BlockPathDown',
      comment:: |||
        The number of live paths of a multipath device that had more in the last hour, that has a path that is down, or that
        has an NVMe path whose controller was reset more than twice in half an hour, even if no scrape has seen it down: it is
        reset each time that it loses its connection.
        With active/passive storage, the paths through the other controller are always inaccessible, so that state does not
        count. The kernel removes a path that stays away. A device that lost all its paths at once was detached.
      |||,
      expr: |||
        sum by (cluster, instance, path_of) (biolat_path_info{state="live"} or 0 * biolat_path_info)
          < max_over_time(sum by (cluster, instance, path_of) (biolat_path_info{state="live"})[1h:1m])
        or
        sum by (cluster, instance, path_of) (biolat_path_info{state="live"} or 0 * biolat_path_info)
          and on (cluster, instance, path_of) biolat_path_info{state!~"live|unknown|inaccessible|change"}
        or
        sum by (cluster, instance, path_of) (biolat_path_info{state="live"} or 0 * biolat_path_info)
          and on (cluster, instance, path_of)
          max by (cluster, instance, path_of) (
            increase(biolat_nvme_events_total{event="reset"}[30m])
              * on (cluster, instance, device) group_left (path_of)
            max by (cluster, instance, device, path_of) (biolat_path_info)
          ) > 2
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

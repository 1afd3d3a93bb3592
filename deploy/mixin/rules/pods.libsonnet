// I/O per pod.
function(histograms, config) {
  local byPod(record, metric, comment='', le='') = {
    record: record,
    comment:: comment,
    expr: |||
      sum by (cluster, instance, namespace, pod, device, op%s) (
        rate(%s[5m])
          * on (cluster, instance, cgroup) group_left (namespace, pod)
        group by (cluster, instance, cgroup, namespace, pod) (biolat_workload_info{pod!=""})
      )
    ||| % [le, metric],
  },
  local latency = histograms.metric('biolat_workload_latency_seconds'),
  local histogram = 'namespace_pod_device_op%s:%s:rate5m' % [histograms.level, latency],

  name: 'biolat-pods',
  rules: [
    byPod(
      'namespace_pod_device_op:biolat_workload_ios:rate5m',
      'biolat_workload_ios_total',
      comment=|||
        I/O per pod, summed over its cgroups. There is none without biolat_workload_info{pod!=""}: with --workloads off, or on
        nodes without the kubelet's links in /var/log/containers.
      |||
    ),
    byPod('namespace_pod_device_op:biolat_workload_io_bytes:rate5m', 'biolat_workload_io_bytes_total'),
    byPod(
      'namespace_pod_device_op:biolat_workload_device_seconds:rate5m',
      'biolat_workload_device_seconds_total',
      comment='Seconds in the drive per second: the mean number of I/Os in the drive.'
    ),
    byPod(histogram, latency, comment='Total latency. Compute other quantiles from it.', le=histograms.le),
    {
      record: 'namespace_pod_device_op:biolat_workload_latency_seconds:p99_rate5m',
      expr: 'histogram_quantile(0.99, %s) >= 0' % histogram,
    },
  ],
}

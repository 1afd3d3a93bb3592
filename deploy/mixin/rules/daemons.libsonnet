// Figures of biolat itself.
function(histograms, config) {
  name: 'biolat-daemons',
  rules: [
    {
      record: 'instance:biolat_collect_duration_seconds:count_rate5m',
      expr: histograms.count('biolat_collect_duration_seconds', 'cluster, instance'),
    },
    {
      record: 'instance:biolat_collect_duration_seconds:p99_rate5m',
      expr: histograms.quantile(0.99, 'biolat_collect_duration_seconds', 'cluster, instance'),
    },
    {
      record: 'node:biolat_targets:count',
      comment:: |||
        Number of biolat targets per node: 0 for a node that only kube-state-metrics knows, or node_exporter in clusters without
        kube-state-metrics. The node is the target's instance without the port, or its label node.
      |||,
      expr: |||
        count by (cluster, node) (
          label_replace(up{%(biolatSelector)s}, "node", "$1", "instance", "(.+?)(:[0-9]+)?")
          or up{%(biolatSelector)s, node!=""}
        )
        or
        0 * (
          group by (cluster, node) (kube_node_info{%(kubeStateMetricsSelector)s})
          or on (cluster)
          group by (cluster, node) (
            label_replace(node_uname_info{%(nodeExporterSelector)s}, "node", "$1", "instance", "(.+?)(:[0-9]+)?")
          )
        )
      ||| % config,
    },
  ],
}

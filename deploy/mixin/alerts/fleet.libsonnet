// Alerts on missing drives and daemons. They read the whole fleet or hours of samples, so they are evaluated less often, in a group
// of their own that delays no other.
function(config) {
  name: 'biolat-fleet',
  interval: '5m',
  rules: [
    {
      alert: 'BlockDeviceVanished',
      comment:: |||
        Only fixed drives: USB disks, network and cloud volumes, and virtual disks come and go. Compared by serial number and WWID,
        because a reboot may give a drive another name. A lost path to a drive that is still there is BlockPathDown. The alert
        ends six hours after the drive vanished.
      |||,
      expr: |||
        group by (cluster, instance, device, model, serial, wwid) (
          last_over_time(
            biolat_device_info{
              kind=~"drive|",
              transport=~"%(fixedTransports)s",
              model!~"%(virtualModels)s",
              wwid!=""
            }[6h:10m]
          )
        )
        unless on (cluster, instance, serial, wwid) biolat_device_info
        and on (cluster, instance) biolat_build_info
      |||,
      'for': '5m',
      labels: { severity: 'warning' },
      annotations: {
        summary: '{{ $labels.device }} on {{ $labels.instance }} has vanished',
        description: 'The drive ({{ $labels.model }}, serial number {{ $labels.serial }}) was there within the last six hours.',
        runbook: 'On the node: dmesg --level err,warn | grep {{ $labels.device }}',
      },
    },
    {
      alert: 'BiolatMissingOnNode',
      comment:: |||
        A node that node_exporter or kube-state-metrics knows, without a biolat target. A target that is down is BiolatDown; no
        target anywhere is BiolatAbsent. Only in clusters where most nodes have one: elsewhere biolat is meant for some of the
        nodes, or is being rolled out, or the nodes have other names than biolat's targets.
      |||,
      expr: |||
        node:biolat_targets:count == 0
        and on (cluster) avg by (cluster) (node:biolat_targets:count > bool 0) > %(nodesWithBiolatRatio)g
      |||,
      'for': '30m',
      labels: { severity: 'info' },
      annotations: {
        summary: 'No biolat on node {{ $labels.node }}',
        description: "Most other nodes run biolat. The latency of this node's drives is unknown, and no alert on them can fire.",
        runbook: 'kubectl --namespace biolat get pods -o wide, or systemctl status biolat; then scrape_configs',
      },
    },
    {
      alert: 'BiolatVersionsMixed',
      expr: 'count by (cluster) (group by (cluster, version) (biolat_build_info)) > 1',
      'for': config.mixedVersionsFor,
      labels: { severity: 'info' },
      annotations: {
        summary: '{{ $value }} different versions of biolat have been running for a long time',
        description: 'Is an upgrade stuck? Rules and dashboards of the newest version need series that older ones may lack.',
        runbook: 'In Prometheus: count by (version) (biolat_build_info)',
      },
    },
  ],
}

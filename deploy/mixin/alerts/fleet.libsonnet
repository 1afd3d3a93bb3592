// Alerts on what is missing. They look at the whole fleet or hours back, so they are evaluated less often and delay no others.
function(config) {
  name: 'biolat-fleet',
  interval: '5m',
  rules: [
    {
      alert: 'BlockDeviceVanished',
      comment:: |||
        Drives of a node, as they are gone for a reason: not USB, volumes of a network or a cloud, or virtual disks, which come
        and go. By serial number and WWID: a reboot may give a drive another name. A path of a drive that is there is
        BlockPathDown. Ends six hours after the drive vanished.
      |||,
      expr: |||
        group by (cluster, instance, device, model, serial, wwid) (
          last_over_time(
            biolat_device_info{
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
        A node of node_exporter or kube-state-metrics without a target: a target that is down is BiolatDown, no target at all is
        BiolatAbsent. Only in clusters where most nodes have one: elsewhere biolat is meant for some nodes, or is being rolled
        out, or the nodes have other names than biolat's targets.
      |||,
      expr: |||
        node:biolat_targets:count == 0
        and on (cluster) avg by (cluster) (node:biolat_targets:count > bool 0) > %(nodesWithBiolatRatio)g
      |||,
      'for': '30m',
      labels: { severity: 'info' },
      annotations: {
        summary: 'No biolat on the node {{ $labels.node }}',
        description: 'Most nodes have one. The latency of the drives of this node is unknown, and no alert on them can fire.',
        runbook: 'kubectl --namespace biolat get pods -o wide, or systemctl status biolat; then scrape_configs',
      },
    },
    {
      alert: 'BiolatVersionsMixed',
      expr: 'count by (cluster) (group by (cluster, version) (biolat_build_info)) > 1',
      'for': config.mixedVersionsFor,
      labels: { severity: 'info' },
      annotations: {
        summary: 'biolat has had {{ $value }} versions for a long time',
        description: 'Is an upgrade stuck? Rules and dashboards of the newest version need series that older ones may lack.',
        runbook: 'In Prometheus: count by (version) (biolat_build_info)',
      },
    },
  ],
}

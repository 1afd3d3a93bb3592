{
  _config+:: {
    // Native or classic histograms: which recording rules and which dashboard.
    histograms: 'native',
    // Matchers of biolat's targets, for metrics that other targets have too (up, process_*).
    biolatSelector: 'job="biolat"',
    // Matchers added to each series that biolat exposes; recorded series have none. Empty: all series of that name.
    seriesSelector: '',
    // Matchers of the nodes that should run biolat, as node_exporter and kube-state-metrics know them.
    nodeExporterSelector: 'sysname="Linux", machine="x86_64"',
    kubeStateMetricsSelector: 'os_image!~"Windows.*"',
    // The label that tells clusters apart. It may be absent.
    clusterLabel: 'cluster',
    // Where your on-call finds deploy/prometheus/runbook.md; %s is the name of the alert in lower case.
    runbookURLPattern: 'https://runbooks.example/biolat/runbook.md#%s',
    // Names of alerts that are left out.
    ignoredAlerts: [],

    // Thresholds of the alerts on drives.
    hungSeconds: 30,
    ignoredErrorOps: 'drv_in|drv_out',
    ignoredErrorStatuses: 'notsupp|again|resource|dev_resource|dm_requeue|resv_conflict',
    errorsRatio: 0.01,
    // Where a model has so many drives, only BlockDeviceFailSlow compares them.
    manyDrives: 10,
    slowerThanPastFactor: 3,
    slowerThanPastClassicFactor: 6,
    slowerThanSiblingsFactor: 3,
    slowerThanSiblingsClassicFactor: 6,
    minLatencySeconds: 0.002,
    flushSlowSeconds: 0.1,
    flushSlowRotationalSeconds: 1,
    flushStormShare: 0.5,
    saturatedRatio: 1,
    completionsPerCPU: 50000,
    slowForSizeFactor: 12,
    slowForSizeSeconds: 0.005,
    // Slower than others for the same work: how many times as slow a drive is, one op and size of it, in stalls, a node, a firmware
    // and a model. A drive must also be beyond so many standard deviations of those that do the same work; these differ by the
    // least spread at least. Fewer drives that do the same work, and firmwares of fewer nodes, are not compared.
    failSlowFactor: 1.5,
    failSlowSpreads: 2,
    failSlowSizeFactor: 2,
    failSlowSizeSpreads: 3,
    failSlowStallFactor: 2,
    failSlowStallSpreads: 2.5,
    failSlowNodeFactor: 1.25,
    failSlowNodeSpreads: 1,
    failSlowFirmwareFactor: 1.4,
    failSlowModelFactor: 1.3,
    // A drive with so many I/Os in the device, and more load than its siblings, is overloaded, not sick. One with so many times their
    // load does other work, such as a rebuild.
    failSlowOverloadInflight: 10,
    failSlowOtherWorkFactor: 2,
    // A drive with fewer I/Os per second is judged by twenty minutes instead of five. Drives with less load are all compared with one
    // another: their I/Os hardly wait for each other.
    failSlowQuietIOs: 1,
    failSlowLeastLoad: 16,
    failSlowMinSpread: 0.08,
    failSlowNearSpread: 0.2,
    failSlowMinDrives: 5,
    // Of so many drives of a node the median is what they share.
    failSlowMinSiblings: 3,
    failSlowMinNodes: 3,
    // A drive that keeps an I/O for so long is among the worst of the dashboard, which has the same limit.
    worstHangSeconds: 8,
    // Drives that do not vanish on purpose.
    fixedTransports: 'pcie|sas|sata',
    virtualModels: 'Amazon.*|Google.*|MSFT.*|Microsoft.*|Msft.*|QEMU.*|VBOX.*|VMware.*|nvme_card.*|.*Virtual.*',

    // Thresholds of the alerts on biolat.
    staleSeconds: 600,
    collectFailures: 3,
    overrunsRatio: 0.1,
    lostRatio: 0.01,
    missedRatio: 0.01,
    nodesWithBiolatRatio: 0.5,
    mixedVersionsFor: '1d',

    // Service levels: so many of the reads and writes of a class of devices (nvme, ssd, rotating) complete within so many seconds.
    // Off, as no target suits everyone: choose yours. With classic histograms each one has to be the bound of a bucket.
    slo: {
      enabled: false,
      objective: 0.999,
      targets: {
        nvme: { read: 0.015625, write: 0.015625 },
        ssd: { read: 0.0625, write: 0.0625 },
        rotating: { read: 1, write: 1 },
      },
    },

    // Of the dashboard: text before its title, and more tags.
    dashboardTitlePrefix: '',
    dashboardTags: [],
  },
}

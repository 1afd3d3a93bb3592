{
  _config+:: {
    // 'native' or 'classic': selects the recording rules and the dashboard.
    histograms: 'native',
    // Matchers for biolat's targets, used on metrics that other targets expose too (up, process_*).
    biolatSelector: 'job="biolat"',
    // Matchers added to each series that biolat exposes, not to recorded series. Empty: all series of that name.
    seriesSelector: '',
    // Matchers for the nodes that should run biolat, on metrics of node_exporter and kube-state-metrics.
    nodeExporterSelector: 'sysname="Linux", machine="x86_64"',
    kubeStateMetricsSelector: 'os_image!~"Windows.*"',
    // The label that tells clusters apart. Series may lack it.
    clusterLabel: 'cluster',
    // The address at which you publish deploy/prometheus/runbook.md; %s is the name of the alert in lower case.
    runbookURLPattern: 'https://runbooks.example/biolat/runbook.md#%s',
    // Names of alerts to leave out.
    ignoredAlerts: [],

    // Thresholds for the alerts on drives.
    hungSeconds: 30,
    ignoredErrorOps: 'drv_in|drv_out',
    ignoredErrorStatuses: 'notsupp|again|resource|dev_resource|dm_requeue|resv_conflict',
    errorsRatio: 0.01,
    // For models with at least this many drives, only BlockDeviceFailSlow compares them.
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
    // Slowdown factors, compared with others for the same work: for a drive, for one op and size of a drive, for stalls, for a
    // node, a firmware and a model. The slowdown also has to exceed a number of standard deviations (…Spreads) of the drives
    // that do the same work.
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
    // A drive with this many I/Os in the device and more load than its siblings is overloaded, not sick. A drive with this many
    // times their load does other work, such as a rebuild.
    failSlowOverloadInflight: 10,
    failSlowOtherWorkFactor: 2,
    // A drive with fewer I/Os per second than this is judged over twenty minutes instead of five. Drives with less load than
    // failSlowLeastLoad form one class: their I/Os hardly wait for each other.
    failSlowQuietIOs: 1,
    failSlowLeastLoad: 16,
    // The spread between drives that do the same work is taken to be at least the first value. If the spread of drives with about
    // the same load is below the second value, it is used even if the class itself has a larger one.
    failSlowMinSpread: 0.08,
    failSlowNearSpread: 0.2,
    // Fewer drives that do the same work than this are not compared.
    failSlowMinDrives: 5,
    // The median of at least this many drives of a model on a node is the slowdown that they share.
    failSlowMinSiblings: 3,
    // Firmwares on fewer nodes than this are not compared.
    failSlowMinNodes: 3,
    // A drive with an I/O in flight for this long is among the dashboard's worst drives. The dashboard has the same limit.
    worstHangSeconds: 8,
    // Drives that should not vanish: fixed transports, and no virtual models.
    fixedTransports: 'pcie|sas|sata',
    virtualModels: 'Amazon.*|Google.*|MSFT.*|Microsoft.*|Msft.*|QEMU.*|VBOX.*|VMware.*|nvme_card.*|.*Virtual.*',

    // Thresholds for the alerts on biolat itself.
    staleSeconds: 600,
    collectFailures: 3,
    overrunsRatio: 0.1,
    lostRatio: 0.01,
    missedRatio: 0.01,
    nodesWithBiolatRatio: 0.5,
    mixedVersionsFor: '1d',

    // Service levels: the share (objective) of the reads and writes of a class of devices (nvme, ssd, rotating) that completes
    // within the target, in seconds. Off by default, because no target suits everyone: choose yours. With classic histograms each
    // target has to be a bucket bound.
    slo: {
      enabled: false,
      objective: 0.999,
      targets: {
        nvme: { read: 0.015625, write: 0.015625 },
        ssd: { read: 0.0625, write: 0.0625 },
        rotating: { read: 1, write: 1 },
      },
    },

    // A prefix for the dashboard's title, and additional tags.
    dashboardTitlePrefix: '',
    dashboardTags: [],
  },
}

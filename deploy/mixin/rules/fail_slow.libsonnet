// How slow each drive is for its work: the figures behind BlockDeviceFailSlow.
local withModel = import 'with_model.libsonnet';

local drive = 'cluster, instance, device, model';
local band = 'cluster, instance, device, op, size';
local cohort = 'cluster, model, op, size, work';
// The same across clusters.
local cohorts = 'model, op, size, work';

local mean = 'instance_device_op_size:biolat_size_device_latency_seconds:mean_rate5m';
local class = 'instance_device_op:biolat_work:class_rate5m';
local load = 'instance_device:biolat_work:load_rate5m';
local overloaded = 'instance_device:biolat_work:overloaded_rate5m';
local below = 'work_below:biolat_work:class_rate5m';
local peers = 'model_op_size_work:biolat_size_device_latency_seconds:drives_rate5m';
local median = 'model_op_size_work:biolat_size_device_latency_seconds:median_mean_rate5m';
local spread = 'model_op_size_work:biolat_size_device_latency_seconds:spread_mean_rate5m';
local longestMedian = 'model_op_size_work:biolat_size_device_latency_seconds:longest_median_mean_rate5m';
local largestSpread = 'model_op_size_work:biolat_size_device_latency_seconds:largest_spread_mean_rate5m';
local pooledSpread = 'model_op_size_work:biolat_size_device_latency_seconds:pooled_spread_mean_rate5m';
local slowdownInSize = 'instance_device_op_size:biolat_size_device_latency_seconds:slowdown_rate5m';
local slowInSize = 'instance_device_op_size:biolat_size_device_latency_seconds:slow_rate5m';
local slowdown = 'instance_device:biolat_slowdown:rate5m';
local driveSpread = 'instance_device:biolat_slowdown:spread_rate5m';
local nodeSlowdown = 'instance:biolat_slowdown:median_rate5m';
local slowNode = 'instance:biolat_slowdown:slow_rate5m';
local slow = 'instance_device:biolat_slowdown:slow_rate5m';
local stalled = 'instance_device:biolat_slowdown:stalled_rate5m';
local typical = 'instance_device:biolat_slowdown:typical1h';
local score = 'instance_device:biolat_slowdown:score1w';
local slowestSize = 'instance_device_op_size:biolat_size_device_latency_seconds:topk_slowdown_rate5m';

local quiet = 'instance_device:biolat_work:quiet20m';
local quietCount = 'instance_device_op_size:biolat_size_device_latency_seconds:quiet_count_rate5m';
local quietSum = 'instance_device_op_size:biolat_size_device_latency_seconds:quiet_sum_rate5m';

local ios = 'instance_device_op:biolat_total_latency_seconds:count_rate5m{op=~"read|write"}';
local bytes = 'instance_device_op:biolat_io_bytes:rate5m{op=~"read|write"}';
local in20m(figure) = 'avg_over_time(%s[20m])' % figure;

local indented(by, text) = std.strReplace(std.rstripChars(text, '\n'), '\n', '\n' + by);

local allMeans = mean + '{model!="", op=~"read|write"}';

// Each drive's class of work, or the next higher or lower one, as a label.
local classes(label, higher=0) =
  'count_values by (cluster, instance, device, op) ("%s", %s%s)' % [
    label,
    class,
    if higher == 0 then '' else ' %s 1' % (if higher > 0 then '+' else '-'),
  ];

// Mean latencies of reads and writes by size, with the label `work`: the drive's class of work, or the class of the next higher
// or lower load.
local means(higher=0, of=allMeans) = |||
  %(of)s
    * on (cluster, instance, device, op) group_left (work)
  %(classes)s
||| % { of: of, classes: classes('work', higher) };

// Each drive in three classes: with its own load, the next lower and the next higher one.
local pooled = std.join('  or\n', ['  ' + indented('  ', means(higher)) + '\n' for higher in [-1, 0, 1]]);

// For a figure per class: the larger of the figures for the class itself and for the next higher load.
local maxOverNextLoad(figure, by) = |||
  max by (%(by)s) (
    label_replace(%(figure)s * on (work) group_left (below) %(below)s, "work", "$1", "below", "(.*)")
      or
    %(figure)s
  )
||| % { figure: figure, by: by, below: below };

// The spread of the drives that a drive is compared with, by op and size.
local spreadInSize(of=allMeans) = |||
  max by (%(drive)s, op, size) (
    0 * (
      %(means)s
    )
      + on (%(cohorts)s) group_left ()
    %(spread)s
  )
||| % { drive: drive, means: indented('    ', means(of=of)), cohorts: cohorts, spread: largestSpread };

// One figure for quiet drives, and another for the rest.
local unlessQuiet(usual, ofQuiet) = |||
  %(usual)s
    unless on (cluster, instance, device) %(quiet)s
    or
  %(ofQuiet)s
    and on (cluster, instance, device) %(quiet)s
||| % { usual: std.rstripChars(usual, '\n'), ofQuiet: std.rstripChars(ofQuiet, '\n'), quiet: quiet };

// The median of a figure over the drives of a model on a node, if there are enough of them: the part that they share.
local shared(figure, by, drives) = |||
  quantile by (%(by)s) (0.5, %(figure)s)
    and
  count by (%(by)s) (%(figure)s) >= %(drives)d
||| % { figure: figure, by: by, drives: drives };

// A slowdown without the part that the drive's siblings share.
local excludeShared(figure, by, siblings) = |||
  (
    %(figure)s
      / on (%(by)s) group_left ()
    clamp_min(
      %(siblings)s,
      1
    )
    or %(figure)s
  )
||| % { figure: figure, by: by, siblings: indented('      ', siblings) };

local ownSlowdown = excludeShared(slowdown, 'cluster, instance, model', nodeSlowdown);

// Slowdowns above a factor, and above a number of standard deviations.
local exceeds(figure, factor, spreads, spread) = |||
  (%s > %g)
    >
  exp(%g * %s)
||| % [std.rstripChars(figure, '\n'), factor, spreads, std.rstripChars(spread, '\n')];

// The same without overloaded drives, which cannot help that I/Os wait.
local exceedsUnlessOverloaded(figure, factor, spreads, spread) =
  exceeds(figure, factor, spreads, spread) + 'unless on (cluster, instance, device)\n%s\n' % overloaded;

// The deviation of means from the medians of their clusters, as a standard deviation of the logarithm. It is estimated from the
// median deviation, which a few sick drives do not change, over all clusters, because drives differ as much in one as in another.
local deviation(means) = |||
  1.4826 * quantile by (%(cohorts)s) (0.5,
    abs(ln(
      (
        %(means)s
      )
        / on (%(cohort)s) group_left ()
      %(median)s
    ))
  )
||| % { cohort: cohort, cohorts: cohorts, means: indented('        ', means), median: median };

function(histograms, config) {
  local countInSize = histograms.count('biolat_size_device_latency_seconds', band),
  local sumInSize = histograms.sum('biolat_size_device_latency_seconds', band),

  // The median per firmware, of firmwares that enough nodes run.
  local firmwares = |||
    quantile by (cluster, model, firmware) (0.5,
      %(typical)s
        * on (cluster, instance, device) group_left (firmware)
      group by (cluster, instance, device, firmware) (biolat_device_info)
    )
      and
    count by (cluster, model, firmware) (group by (cluster, instance, model, firmware) (biolat_device_info{kind=~"drive|"})) >= %(nodes)d
  ||| % { typical: typical, nodes: config.failSlowMinNodes },

  name: 'biolat-fail-slow',
  // Shorter than the 5m for which Prometheus returns a sample: series then have no gaps.
  interval: '4m',
  rules: [
    {
      record: quiet,
      comment:: 'Quiet drives: fewer I/Os per second than %g. They are judged over twenty minutes, because five have too few I/Os.' % config.failSlowQuietIOs,
      expr: 'sum by (cluster, instance, device) (%s) < %g' % [in20m(ios), config.failSlowQuietIOs],
    },
    {
      record: quietCount,
      comment:: 'I/Os and seconds of quiet drives by size. Twenty minutes have five evaluations.',
      expr: '%s > 0 and on (cluster, instance, device) %s' % [
        countInSize,
        quiet,
      ],
    },
    {
      record: quietSum,
      expr: '%s and on (%s) %s' % [sumInSize, band, quietCount],
    },
    {
      record: mean,
      comment:: 'Mean latency by size, of sizes with at least fifteen I/Os: in five minutes, or in twenty for quiet drives.',
      expr: withModel('(\n  %s\n)' % indented('  ', unlessQuiet(
        |||
          %s
            /
          (%s > 0.05)
        ||| % [
          sumInSize,
          countInSize,
        ],
        'sum_over_time(%s[20m]) / (sum_over_time(%s[20m]) > 0.05)' % [quietSum, quietCount]
      ))),
    },
    {
      record: load,
      comment:: 'The load of a drive: 1 is one I/O, or 128 KiB, per second. It does not depend on the latency of the drive.',
      local sum(ios, bytes) = 'sum by (cluster, instance, device) (\n  %s\n    + %s / 131072\n)' % [ios, bytes],
      expr: withModel('(\n  %s\n)' % indented('  ', unlessQuiet(sum(ios, bytes), sum(in20m(ios), in20m(bytes))))),
    },
    {
      record: overloaded,
      comment:: |||
        Drives with %(failSlowOverloadInflight)g I/Os in the device and more load than their siblings, or with %(failSlowOtherWorkFactor)g times their load. A healthy drive is
        slow if it gets more work than it can do, and a drive that rebuilds does other work. A sick drive gets no more work than
        its siblings, and completes less.
      ||| % config,
      local more(factor='') = |||
        %(load)s
          > on (cluster, instance, model) group_left ()
        %(factor)squantile by (cluster, instance, model) (0.5, %(load)s)
      ||| % { load: load, factor: factor },
      expr: |||
        (
          %s
        )
          and on (cluster, instance, device)
        instance_device:biolat_device_latency_seconds:sum_rate5m >= %g
          or
        %s
      ||| % [
        indented('  ', more()),
        config.failSlowOverloadInflight,
        std.rstripChars(more('%g * ' % config.failSlowOtherWorkFactor), '\n'),
      ],
    },
    {
      record: class,
      comment:: |||
        The class of a drive's work: 1000 times the mean size of the op's requests, plus the drive's load, both in half powers of
        two. A load below %g counts as that: I/Os hardly wait for each other.
      ||| % config.failSlowLeastLoad,
      expr: |||
        1000 * floor(2 * log2(
          %s
        ))
          + on (cluster, instance, device) group_left ()
        floor(2 * log2(clamp_min(%s, %g)))
      ||| % [
        indented('  ', unlessQuiet('%s / (%s > 0)' % [bytes, ios], '%s / (%s > 0)' % [in20m(bytes), in20m(ios)])),
        load,
        config.failSlowLeastLoad,
      ],
    },
    {
      record: below,
      comment:: 'Maps each class to the class below: the same size, and the next lower load.',
      expr: |||
        group by (work, below) (
          %s
            * on (cluster, instance, device, op) group_left (below)
          %s
        )
      ||| % [classes('work', 1), classes('below')],
    },
    {
      record: peers,
      comment:: 'Number of drives of a model in a cluster that do about the same work: with this load, the next lower or the next higher one.',
      expr: 'count by (%s) (\n%s\n)\n' % [cohort, std.rstripChars(pooled, '\n')],
    },
    {
      record: median,
      comment:: |||
        How long these drives take for an op and size: the median of their means. Each node counts once, so one bad node cannot
        move it. If a cluster has fewer than %(drives)d such drives, the median is over all clusters; if these have fewer too, there is none.
      ||| % { drives: config.failSlowMinDrives },
      local medianOfNodes(by) = |||
        quantile by (%(by)s) (0.5,
          quantile by (cluster, instance, %(cohorts)s) (0.5,
            %(deep)s
          )
        )
      ||| % { by: by, cohorts: cohorts, deep: indented('    ', pooled) },
      expr: |||
        (
          %(own)s
            and
          %(peers)s >= %(drives)d
        )
          or
        0 * %(peers)s
          + on (%(cohorts)s) group_left ()
        (
          %(all)s
            and
          sum by (%(cohorts)s) (%(peers)s) >= %(drives)d
        )
      ||| % {
        own: indented('  ', medianOfNodes(cohort)),
        all: indented('  ', medianOfNodes(cohorts)),
        peers: peers,
        cohorts: cohorts,
        drives: config.failSlowMinDrives,
      },
    },
    {
      record: longestMedian,
      comment:: |||
        What a drive is compared with: this median, or the median for the next higher load if that is longer, because near
        saturation a little more load makes a large difference.
      |||,
      expr: maxOverNextLoad(median, cohort) + 'and\n%s\n' % median,
    },
    {
      record: pooledSpread,
      comment:: 'The spread of drives with this load, the next lower and the next higher one.',
      expr: deviation(pooled),
    },
    {
      record: spread,
      comment:: |||
        The spread of drives that do the same work. It is the spread of drives with about this load if that is below %(near)g, because
        a class alone can have few drives. Drives near saturation differ by large factors that depend on the load, so
        otherwise the spread of the class itself counts if it is larger. The spread is at least %(least)g.
      ||| % { near: config.failSlowNearSpread, least: config.failSlowMinSpread },
      expr: |||
        clamp_min(
          %(pooled)s < %(near)g
            or
          (
            %(own)s
          ) > %(pooled)s
            or
          %(pooled)s,
          %(least)g
        )
      ||| % {
        pooled: pooledSpread,
        near: config.failSlowNearSpread,
        own: indented('    ', deviation(means())),
        least: config.failSlowMinSpread,
      },
    },
    {
      record: largestSpread,
      comment:: 'The spread of the drives that a drive is compared with.',
      expr: maxOverNextLoad(spread, cohorts),
    },
    {
      record: slowdownInSize,
      comment:: |||
        How many times as long as others a drive takes for an op and size. The mean of few I/Os is noise, so the ratio is
        damped: at 0.05 I/Os per second to its square root.
      |||,
      expr: |||
        max by (%(drive)s, op, size) (
          (
            %(means)s
          )
            / on (%(cohort)s) group_left ()
          %(median)s
        )
          ^ on (%(band)s) group_left ()
        (1 - 0.05 / (0.05 + (
          %(count)s
        )))
      ||| % {
        drive: drive,
        cohort: cohort,
        band: band,
        means: indented('    ', means()),
        median: longestMedian,
        count: indented('  ', unlessQuiet(countInSize, 'sum_over_time(%s[20m])' % quietCount)),
      },
    },
    {
      record: slowInSize,
      comment:: 'Ops and sizes for which a drive takes %(failSlowSizeFactor)g times as long, apart from what its siblings share, and is beyond %(failSlowSizeSpreads)g standard deviations.' % config,
      local siblings = 'cluster, instance, model, op, size',
      expr: exceedsUnlessOverloaded(
        excludeShared(slowdownInSize, siblings, shared(slowdownInSize, siblings, config.failSlowMinSiblings)),
        config.failSlowSizeFactor,
        config.failSlowSizeSpreads,
        // Computed only for the few drives above the factor, to save time.
        spreadInSize('(%s and on (%s) %s > %g)' % [allMeans, band, slowdownInSize, config.failSlowSizeFactor])
      ),
    },
    {
      record: slowdown,
      comment:: 'How many times as long as others a drive takes for its work: the median over its ops and sizes.',
      expr: 'quantile by (%s) (0.5, %s)' % [drive, slowdownInSize],
    },
    {
      record: driveSpread,
      comment:: 'The spread of drives that do the same work, as a standard deviation of the logarithm: the median over these ops and sizes.',
      expr: |||
        quantile by (%(drive)s) (0.5,
          %(spread)s and %(slowdown)s
        )
      ||| % { drive: drive, spread: indented('  ', spreadInSize()), slowdown: slowdownInSize },
    },
    {
      record: nodeSlowdown,
      comment:: 'The slowdown that the drives of a model share on a node with %d or more of them.' % config.failSlowMinSiblings,
      expr: shared(slowdown, 'cluster, instance, model', config.failSlowMinSiblings),
    },
    {
      record: slowNode,
      comment:: |||
        Nodes whose drives, %(failSlowMinDrives)d or more, share a slowdown above %(failSlowNodeFactor)g and beyond %(failSlowNodeSpreads)g standard deviations. If half of them
        have %(failSlowOverloadInflight)g I/Os in the device, they are overloaded instead.
      ||| % config,
      expr: exceeds(
        nodeSlowdown,
        config.failSlowNodeFactor,
        config.failSlowNodeSpreads,
        'quantile by (cluster, instance, model) (0.5, %s)' % driveSpread
      ) + |||
        and
        count by (cluster, instance, model) (%(slowdown)s) >= %(drives)d
        unless
        quantile by (cluster, instance, model) (0.5, instance_device:biolat_device_latency_seconds:sum_rate5m) >= %(inflight)g
      ||| % { slowdown: slowdown, drives: config.failSlowMinDrives, inflight: config.failSlowOverloadInflight },
    },
    {
      record: slow,
      comment:: 'Drives that take %(failSlowFactor)g times as long and are beyond %(failSlowSpreads)g standard deviations.' % config,
      expr: exceedsUnlessOverloaded(ownSlowdown, config.failSlowFactor, config.failSlowSpreads, driveSpread),
    },
    {
      record: stalled,
      comment:: 'The same for %(failSlowStallFactor)g times as long and %(failSlowStallSpreads)g standard deviations: stalls, which do not recur on a healthy drive.' % config,
      expr: exceedsUnlessOverloaded(ownSlowdown, config.failSlowStallFactor, config.failSlowStallSpreads, driveSpread),
    },
    {
      record: typical,
      comment:: 'The median slowdown of a drive in the last hour.',
      expr: 'quantile_over_time(0.5, %s[1h])' % slowdown,
    },
    {
      record: 'model_firmware:biolat_slowdown:ratio1h',
      comment:: 'A firmware compared with the fastest firmware of the model, of those that at least %d nodes run.' % config.failSlowMinNodes,
      expr: |||
        (
          %(firmwares)s
        )
          / on (cluster, model) group_left ()
        min by (cluster, model) (
          %(firmwares)s
        )
      ||| % { firmwares: indented('  ', firmwares) },
    },
    {
      record: score,
      comment:: |||
        The score of the week: 1 is twice as slow as others all the time. It is a decaying mean, in which two days ago count half
        and a week ago a tenth, so it falls as soon as the drive recovers. 0.99904 to the power of 720, the evaluations of two days,
        is 0.5. A slowdown counts as ten at most, and not at all if it can be noise. Healthy drives have no score.
      |||,
      expr: |||
        (
          0.99904 * last_over_time(%(score)s[1d])
            + (
              0.00096 * %(excess)s
              or 0 * last_over_time(%(score)s[1d])
            )
          or
          0.00096 * %(excess)s
        ) > 0.0005
      ||| % {
        score: score,
        excess: '(clamp_max(max by (%s) (%s or %s), 10) - 1)' % [drive, slow, slowInSize],
      },
    },
    {
      record: slowestSize,
      comment:: 'The op and size in which a drive with a score is slowest now.',
      expr: 'topk by (cluster, instance, device) (1, %s > 1 and on (cluster, instance, device) %s)' % [slowdownInSize, score],
    },
  ],
}

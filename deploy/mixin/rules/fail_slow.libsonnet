// How slow each drive is for the work that it does: the figures of BlockDeviceFailSlow.
local withModel = import 'with_model.libsonnet';

local drive = 'cluster, instance, device, model';
local band = 'cluster, instance, device, op, size';
local cohort = 'cluster, model, op, size, work';
// The same of all clusters.
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
local spreadOfDrive = 'instance_device:biolat_slowdown:spread_rate5m';
local ofNode = 'instance:biolat_slowdown:median_rate5m';
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

local meansOfAll = mean + '{model!="", op=~"read|write"}';

// Each drive's class of work, or one so much higher, as a label.
local classes(label, higher=0) =
  'count_values by (cluster, instance, device, op) ("%s", %s%s)' % [
    label,
    class,
    if higher == 0 then '' else ' %s 1' % (if higher > 0 then '+' else '-'),
  ];

// Mean latencies of reads and writes by size, with the label `work`: the class of the drive's work, or the next load higher or lower.
local means(higher=0, of=meansOfAll) = |||
  %(of)s
    * on (cluster, instance, device, op) group_left (work)
  %(classes)s
||| % { of: of, classes: classes('work', higher) };

// Each drive among those that have its load, the next lower and the next higher one.
local pooled = std.join('  or\n', ['  ' + indented('  ', means(higher)) + '\n' for higher in [-1, 0, 1]]);

// Of a figure of each class, that of the class itself or of the next higher load: the larger one.
local larger(figure, by) = |||
  max by (%(by)s) (
    label_replace(%(figure)s * on (work) group_left (below) %(below)s, "work", "$1", "below", "(.*)")
      or
    %(figure)s
  )
||| % { figure: figure, by: by, below: below };

// The spread of those that a drive is compared with, by op and size.
local spreadInSize(of=meansOfAll) = |||
  max by (%(drive)s, op, size) (
    0 * (
      %(means)s
    )
      + on (%(cohorts)s) group_left ()
    %(spread)s
  )
||| % { drive: drive, means: indented('    ', means(of=of)), cohorts: cohorts, spread: largestSpread };

// A figure of most drives, and one of those that do little.
local unlessQuiet(usual, ofQuiet) = |||
  %(usual)s
    unless on (cluster, instance, device) %(quiet)s
    or
  %(ofQuiet)s
    and on (cluster, instance, device) %(quiet)s
||| % { usual: std.rstripChars(usual, '\n'), ofQuiet: std.rstripChars(ofQuiet, '\n'), quiet: quiet };

// What the drives of a model share on a node that has enough of them: the median of a figure.
local shared(figure, by, drives) = |||
  quantile by (%(by)s) (0.5, %(figure)s)
    and
  count by (%(by)s) (%(figure)s) >= %(drives)d
||| % { figure: figure, by: by, drives: drives };

// A slowdown without the part that a drive's siblings share.
local alone(figure, by, siblings) = |||
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

local aloneOfDrive = alone(slowdown, 'cluster, instance, model', ofNode);

// What is so many times as slow as others, and beyond so many standard deviations.
local beyond(figure, factor, spreads, spread) = |||
  (%s > %g)
    >
  exp(%g * %s)
||| % [std.rstripChars(figure, '\n'), factor, spreads, std.rstripChars(spread, '\n')];

// The same without drives that do more than they can: waiting is not theirs to answer for.
local beyondLoad(figure, factor, spreads, spread) =
  beyond(figure, factor, spreads, spread) + 'unless on (cluster, instance, device)\n%s\n' % overloaded;

// The deviation of these means from the medians of their clusters, as one standard deviation of the logarithm: the median deviation, which
// sick drives do not change. How much drives differ is the same in each cluster, so all of them tell.
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

  // The median of each firmware that three nodes have.
  local firmwares = |||
    quantile by (cluster, model, firmware) (0.5,
      %(typical)s
        * on (cluster, instance, device) group_left (firmware)
      group by (cluster, instance, device, firmware) (biolat_device_info)
    )
      and
    count by (cluster, model, firmware) (group by (cluster, instance, model, firmware) (biolat_device_info)) >= %(nodes)d
  ||| % { typical: typical, nodes: config.failSlowMinNodes },

  name: 'biolat-fail-slow',
  // Shorter than the 5m for which Prometheus returns a sample, so that no series has gaps.
  interval: '4m',
  rules: [
    {
      record: quiet,
      comment:: 'Drives with fewer I/Os per second than %g. They are judged by twenty minutes, as five have too few.' % config.failSlowQuietIOs,
      expr: 'sum by (cluster, instance, device) (%s) < %g' % [in20m(ios), config.failSlowQuietIOs],
    },
    {
      record: quietCount,
      comment:: 'Their I/Os and seconds by size, of which twenty minutes are five.',
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
      comment:: 'Mean latency by size, of sizes with fifteen I/Os: in five minutes or, of quiet drives, in twenty.',
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
      comment:: 'The load of a drive: 1 is one I/O, or 128 KiB, per second. Its own latency is not in it.',
      local sum(ios, bytes) = 'sum by (cluster, instance, device) (\n  %s\n    + %s / 131072\n)' % [ios, bytes],
      expr: withModel('(\n  %s\n)' % indented('  ', unlessQuiet(sum(ios, bytes), sum(in20m(ios), in20m(bytes))))),
    },
    {
      record: overloaded,
      comment:: |||
        Drives with %(failSlowOverloadInflight)g I/Os in the device and more load than their siblings, or %(failSlowOtherWorkFactor)g times their load. A healthy drive
        that gets more work than it can do is slow, and one that rebuilds does other work; a sick one gets no more than its siblings,
        but does less.
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
        The class of a drive's work: 1000 times the mean size of the op's requests, plus the drive's load, both in halves of a power
        of two. A load below %g is as good as that: I/Os hardly wait for each other.
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
      comment:: 'The class that is below each one: the same size, and the next lower load.',
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
      comment:: 'How many drives of a model do about the same work in a cluster: those with this load, the next lower and the next higher one.',
      expr: 'count by (%s) (\n%s\n)\n' % [cohort, std.rstripChars(pooled, '\n')],
    },
    {
      record: median,
      comment:: |||
        What these drives take for an op and size: the median of their means. Each node counts once, so a bad node does not set it.
        Where a cluster has fewer than %(drives)d such drives, those of all clusters tell; fewer are not compared.
      ||| % { drives: config.failSlowMinDrives },
      local ofNodes(by) = |||
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
        own: indented('  ', ofNodes(cohort)),
        all: indented('  ', ofNodes(cohorts)),
        peers: peers,
        cohorts: cohorts,
        drives: config.failSlowMinDrives,
      },
    },
    {
      record: longestMedian,
      comment:: |||
        What a drive is compared with: this, or that of the next higher load if it is longer, as a little more load makes much of a
        difference near saturation.
      |||,
      expr: larger(median, cohort) + 'and\n%s\n' % median,
    },
    {
      record: pooledSpread,
      comment:: 'How much drives with this load, the next lower and the next higher one differ.',
      expr: deviation(pooled),
    },
    {
      record: spread,
      comment:: |||
        How much the drives that do the same differ. Where those with about the load differ by less than %(near)g, they tell; a class by
        itself may have few drives. Drives that are nearly saturated differ by times, with each load by another factor, so that of
        the class itself counts if it is larger. The least is %(least)g.
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
      comment:: 'The spread of those that a drive is compared with.',
      expr: larger(spread, cohorts),
    },
    {
      record: slowdownInSize,
      comment:: |||
        How many times as long as others a drive takes for an op and size. The mean of few I/Os is noise: at 0.05 I/Os per second it
        is the square root of that.
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
      comment:: 'Ops and sizes for which a drive takes %(failSlowSizeFactor)g times as long, without what its siblings share, and so many standard deviations: %(failSlowSizeSpreads)g.' % config,
      local siblings = 'cluster, instance, model, op, size',
      expr: beyondLoad(
        alone(slowdownInSize, siblings, shared(slowdownInSize, siblings, config.failSlowMinSiblings)),
        config.failSlowSizeFactor,
        config.failSlowSizeSpreads,
        // Only of these, as few are so slow.
        spreadInSize('(%s and on (%s) %s > %g)' % [meansOfAll, band, slowdownInSize, config.failSlowSizeFactor])
      ),
    },
    {
      record: slowdown,
      comment:: 'How many times as long as others a drive takes for what it does: the median over its ops and sizes.',
      expr: 'quantile by (%s) (0.5, %s)' % [drive, slowdownInSize],
    },
    {
      record: spreadOfDrive,
      comment:: 'How much drives differ that do the same, as a standard deviation of the logarithm: the median over these ops and sizes.',
      expr: |||
        quantile by (%(drive)s) (0.5,
          %(spread)s and %(slowdown)s
        )
      ||| % { drive: drive, spread: indented('  ', spreadInSize()), slowdown: slowdownInSize },
    },
    {
      record: ofNode,
      comment:: 'The slowdown that the drives of a model share on a node of %d or more.' % config.failSlowMinSiblings,
      expr: shared(slowdown, 'cluster, instance, model', config.failSlowMinSiblings),
    },
    {
      record: slowNode,
      comment:: |||
        Nodes whose drives, %(failSlowMinDrives)d or more, share a slowdown of %(failSlowNodeFactor)g, beyond so many standard deviations: %(failSlowNodeSpreads)g. Where half of
        them have %(failSlowOverloadInflight)g I/Os in the device, they have more work than they can do.
      ||| % config,
      expr: beyond(
        ofNode,
        config.failSlowNodeFactor,
        config.failSlowNodeSpreads,
        'quantile by (cluster, instance, model) (0.5, %s)' % spreadOfDrive
      ) + |||
        and
        count by (cluster, instance, model) (%(slowdown)s) >= %(drives)d
        unless
        quantile by (cluster, instance, model) (0.5, instance_device:biolat_device_latency_seconds:sum_rate5m) >= %(inflight)g
      ||| % { slowdown: slowdown, drives: config.failSlowMinDrives, inflight: config.failSlowOverloadInflight },
    },
    {
      record: slow,
      comment:: 'Drives that take %(failSlowFactor)g times as long, and so many standard deviations: %(failSlowSpreads)g.' % config,
      expr: beyondLoad(aloneOfDrive, config.failSlowFactor, config.failSlowSpreads, spreadOfDrive),
    },
    {
      record: stalled,
      comment:: 'The same, %(failSlowStallFactor)g times as long and %(failSlowStallSpreads)g standard deviations: what happens to no healthy drive again and again.' % config,
      expr: beyondLoad(aloneOfDrive, config.failSlowStallFactor, config.failSlowStallSpreads, spreadOfDrive),
    },
    {
      record: typical,
      comment:: 'The slowdown of a drive in the last hour, the median.',
      expr: 'quantile_over_time(0.5, %s[1h])' % slowdown,
    },
    {
      record: 'model_firmware:biolat_slowdown:ratio1h',
      comment:: 'A firmware against the fastest one of the model, of those that %d nodes have.' % config.failSlowMinNodes,
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
        The score of the week: 1 is twice as slow as others all the time. A mean in which two days ago counts half, and a week ago a
        tenth: it falls as soon as the drive recovers. 0.99904 to the power of 720, the evaluations of two days, is 0.5. A
        stall counts as ten times at most, and what may be noise not at all. Healthy drives have no score.
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
      comment:: 'The op and size in which a drive that has a score is slowest now.',
      expr: 'topk by (cluster, instance, device) (1, %s > 1 and on (cluster, instance, device) %s)' % [slowdownInSize, score],
    },
  ],
}

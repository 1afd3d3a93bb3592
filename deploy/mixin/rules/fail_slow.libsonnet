// How slow each drive is for the work that it does: the figures of BlockDeviceFailSlow.
local withModel = import 'with_model.libsonnet';

local drive = 'cluster, instance, device, model';
local band = 'cluster, instance, device, op, size';
local cohort = 'cluster, model, op, size, work';

local mean = 'instance_device_op_size:biolat_size_device_latency_seconds:mean_rate5m';
local class = 'instance_device_op:biolat_work:class_rate5m';
local median = 'model_op_size_work:biolat_size_device_latency_seconds:median_mean_rate5m';
local usual = 'model_op_size_work:biolat_size_device_latency_seconds:longest_usual_mean_rate5m';
local slowdown = 'instance_device_op_size:biolat_size_device_latency_seconds:slowdown_rate5m';
local typical = 'instance_device:biolat_slowdown:typical1h';
local worst = 'instance_device:biolat_slowdown:worst';
local score = 'instance_device:biolat_slowdown:score1w';

local indented(by, text) = std.strReplace(std.rstripChars(text, '\n'), '\n', '\n' + by);

// Mean latencies of reads and writes by size, with the label `work`: the class of the drive's work, or one so many above.
local means(above=0) = |||
  %(mean)s{model!="", op=~"read|write"}
    * on (cluster, instance, device, op) group_left (work)
  count_values by (cluster, instance, device, op) ("work", %(class)s%(above)s)
||| % { mean: mean, class: class, above: if above == 0 then '' else ' + %d' % above };

local hour = |||
  quantile_over_time(0.25, %(slowdown)s[1h])
    and count_over_time(%(slowdown)s[1h]) >= 6
||| % { slowdown: slowdown };

function(histograms, config) {
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
      record: mean,
      comment:: 'Mean latency by size, of sizes with an I/O every two seconds.',
      expr: withModel(|||
        (
          %s
            /
          (%s > 0.5)
        )
      ||| % [
        histograms.sum('biolat_size_device_latency_seconds', band),
        histograms.count('biolat_size_device_latency_seconds', band),
      ]),
    },
    {
      record: class,
      comment:: |||
        The class of a drive's work: 1000 times the mean size of the op's requests, in halves of a power of two, plus the drive's
        load, in thirds of one. A load of 1 is one I/O, or 128 KiB, per second; the drive's own latency is not in it.
      |||,
      expr: |||
        1000 * floor(2 * log2(
          instance_device_op:biolat_io_bytes:rate5m{op=~"read|write"}
            / (instance_device_op:biolat_total_latency_seconds:count_rate5m > 0)
        ))
          + on (cluster, instance, device) group_left ()
        floor(3 * log2(
          sum by (cluster, instance, device) (
            instance_device_op:biolat_total_latency_seconds:count_rate5m{op=~"read|write"}
              + instance_device_op:biolat_io_bytes:rate5m / 131072
          )
        ))
      |||,
    },
    {
      record: median,
      comment:: |||
        What the drives of a model take for an op and size when they do the same work: the median of their means. Each node counts
        once, so a bad node does not set it. Fewer than %(drives)d drives are not compared.
        Latency grows with load and size: a drive that gets more load or larger requests is compared with others that do.
      ||| % { drives: config.failSlowMinDrives },
      expr: |||
        quantile by (%(cohort)s) (0.5,
          quantile by (cluster, instance, model, op, size, work) (0.5,
            %(deep)s
          )
        )
          and
        count by (%(cohort)s) (
          %(means)s
        ) >= %(drives)d
      ||| % { cohort: cohort, deep: indented('    ', means()), means: indented('  ', means()), drives: config.failSlowMinDrives },
    },
    {
      record: usual,
      comment:: |||
        The longest mean that is usual among these drives: %(spread)g standard deviations above the median, by the median deviation, which
        sick drives do not change. Drives that are nearly saturated differ by times, others by a few percent.
      ||| % { spread: config.failSlowSpread },
      expr: |||
        %(median)s
          * exp(%(spread)g * 1.4826 * quantile by (%(cohort)s) (0.5,
            abs(ln(
              %(means)s
                / on (%(cohort)s) group_left ()
              %(median)s
            ))
          ))
      ||| % { median: median, spread: config.failSlowSpread, cohort: cohort, means: indented('      ', means()) },
    },
    {
      record: slowdown,
      comment:: |||
        How many times as long as that a drive takes, or as that of the next higher load if this is longer: near saturation a little
        more load makes much of a difference. Most healthy drives are below 1. 0.2 I/Os per second are added that take as long as
        is usual: the mean of few I/Os is noise.
      |||,
      expr: |||
        1 + (
          min by (%(drive)s, op, size) (
            (
              %(means)s
                or
              %(next)s
            )
              / on (%(cohort)s) group_left ()
            %(usual)s
          ) - 1
        )
          * on (%(band)s) group_left ()
        (1 - 0.2 / (0.2 + %(count)s))
      ||| % {
        drive: drive,
        cohort: cohort,
        band: band,
        means: indented('      ', means()),
        next: indented('      ', means(above=1)),
        usual: usual,
        count: histograms.count('biolat_size_device_latency_seconds', band),
      },
    },
    {
      record: worst,
      comment:: 'That of the op and size in which the drive is slowest now.',
      expr: 'max by (%s) (%s)' % [drive, slowdown],
    },
    {
      record: typical,
      comment:: |||
        The slowdown of a drive over three quarters of an hour: in four tenths of its ops and sizes, and in the worst of them. Six of the
        hour's 15 evaluations are enough, as a drive whose work changes is at times the only one of its class.
      |||,
      expr: 'quantile by (%s) (0.6,\n  %s\n)\n' % [drive, indented('  ', hour)],
    },
    {
      record: 'instance_device:biolat_slowdown:worst1h',
      expr: 'max by (%s) (\n  %s\n)\n' % [drive, indented('  ', hour)],
    },
    {
      record: 'instance_device:biolat_slowdown:stall6h',
      comment:: 'Stalls of minutes that recur: the slowdown in a tenth of six hours.',
      expr: |||
        quantile_over_time(0.9, %(worst)s[6h])
          and count_over_time(%(worst)s[6h]) >= 30
      ||| % { worst: worst },
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
              0.00096 * (clamp_max(%(worst)s > %(factor)g, 10) - 1)
              or 0 * last_over_time(%(score)s[1d])
            )
          or
          0.00096 * (clamp_max(%(worst)s > %(factor)g, 10) - 1)
        ) > 0.0005
      ||| % { score: score, worst: worst, factor: config.failSlowFactor },
    },
  ],
}

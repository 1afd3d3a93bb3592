// How slow each drive is for the work that it does: the figures of BlockDeviceFailSlow.
local drive = 'cluster, instance, device, model';
local band = 'cluster, instance, device, op, size';

// Mean latency by size, of reads and writes.
local mean =
  'instance_device_op_size:biolat_size_device_latency_seconds:mean_rate5m{model!="", op=~"read|write"}';

// The class of the work of a drive's op, as label `work`: the drive's load and the mean size of the op's requests.
// A load of 1 is one request of no size per second; 128 KiB cost a drive about as much as a request. Two classes for each power
// of two, of load and of size: 1000 times the size's and the load's.
local work = |||
  count_values by (cluster, instance, device, op) ("work",
    1000 * floor(
      2 * log2(
        instance_device_op:biolat_io_bytes:rate5m{model!="", op=~"read|write"}
          / (instance_device_op:biolat_total_latency_seconds:count_rate5m > 0)
      )
    )
      + on (cluster, instance, device) group_left ()
    floor(
      2 * log2(
        sum by (cluster, instance, device) (
          instance_device_op:biolat_total_latency_seconds:count_rate5m{op=~"read|write"}
            + instance_device_op:biolat_io_bytes:rate5m / 131072
        )
      )
    )
  )
|||;

local indented(text) = std.strReplace(std.rstripChars(text, '\n'), '\n', '\n  ');

local byWork = |||
  %s
    * on (cluster, instance, device, op) group_left (work)
  %s
||| % [mean, std.rstripChars(work, '\n')];

local median = 'model_op_size_work:biolat_size_device_latency_seconds:median_mean_rate5m';
local slowdown = 'instance_device_op_size:biolat_size_device_latency_seconds:slowdown_rate5m';
local hour = |||
  (
    quantile_over_time(0.25, %s[1h])
    and count_over_time(%s[1h]) >= 11
  )
||| % [slowdown, slowdown];
local score = 'instance_device:biolat_slowdown:fail_slow_score1w';
local worst = 'instance_device:biolat_slowdown:worst';
// How much slower than its peers, in times: only what is more than noise, and at most ten times, so that one stall weighs little.
local excess = '(clamp_max(%s > 1.5, 10) - 1)' % worst;

function(histograms, config) {
  name: 'biolat-fail-slow',
  interval: '4m',
  rules: [
    {
      record: median,
      comment:: |||
        What drives of a model take for a size when they do the same work: the median of their means, of five drives at least.
        The same work is the same load and the same size of requests, each within a factor of 1.4: %s counts both
        in halves of a power of two. A drive that gets more load, or larger requests, is compared with others that do.
      ||| % 'work',
      expr: |||
        quantile by (cluster, model, op, size, work) (0.5,
          %s
        )
        and
        count by (cluster, model, op, size, work) (
          %s
        ) >= %d
      ||| % [indented(byWork), indented(byWork), config.failSlowMinDrives],
    },
    {
      record: slowdown,
      comment:: |||
        How many times as long as that a drive takes. n I/Os per second count as n + 1, of which one is as fast as the others: the
        mean of few I/Os is noise.
      |||,
      expr: |||
        1 + (
          max by (%s, op, size) (
            %s
              / on (cluster, model, op, size, work) group_left ()
            %s
          ) - 1
        )
          * on (%s) group_left ()
        (1 - 1 / (1 + %s))
      ||| % [
        drive,
        std.strReplace(indented(byWork), '\n', '\n    '),
        median,
        band,
        histograms.count('biolat_size_device_latency_seconds', band),
      ],
    },
    {
      record: worst,
      comment:: 'The op and size in which the drive is slowest now.',
      expr: 'max by (%s) (%s)' % [drive, slowdown],
    },
    {
      record: 'instance_device:biolat_slowdown:typical1h',
      comment:: |||
        The slowdown that the drive had for three quarters of the last hour: in the median of its ops and sizes, and in the worst.
        Eleven evaluations are three quarters of an hour: a drive that has just woken has no figure.
      |||,
      expr: 'quantile by (%s) (0.5,\n  %s\n)\n' % [drive, indented(hour)],
    },
    {
      record: 'instance_device:biolat_slowdown:worst1h',
      expr: 'max by (%s) (\n  %s\n)\n' % [drive, indented(hour)],
    },
    {
      record: score,
      comment:: |||
        The week's score: 1 is twice as slow as others all the time. A mean in which two days ago counts half and a week ago a
        tenth, so it falls as soon as the drive recovers: 0.9981 to the power of 720, the evaluations of two days, is a fourth;
        0.99904 is half. Healthy drives have no score.
      |||,
      expr: |||
        (
          0.99904 * last_over_time(%(score)s[1d])
            + (0.00096 * %(excess)s or 0 * last_over_time(%(score)s[1d]))
          or
          0.00096 * %(excess)s
        ) > 0.0005
      ||| % { score: score, excess: excess },
    },
  ],
}

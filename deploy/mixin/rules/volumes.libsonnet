// Figures per volume (dm, md), and the time that a volume adds to that of the drives below it.
local volume = 'cluster, instance, device';
local op = volume + ', op';
local drive = 'cluster, instance, drive';

local latency = 'biolat_volume_latency_seconds';
local below = 'instance_device_drive:biolat_device_holder_info:group';
local isVolume = 'biolat_device_info{kind!~"drive|"}';

local rate(metric, by) = 'sum by (%s) (rate(%s[5m]))' % [by, metric];

// Adds what the volume is: kernel names such as dm-0 say nothing.
local withLabel(expr) = |||
  %s
    * on (%s) group_left (kind, label)
  group by (%s, kind, label) (%s)
||| % [expr, volume, volume, isVolume];

// Of the drives below each volume, one value per op and several volumes: only one of them can be on the "many" side of a join.
local ofDrives(figure) =
  local of(op) =
    ('%s * on (%s) group_left (op) '
     + 'label_replace(instance_device_op:biolat_total_latency_seconds:%s{op="%s"}, "drive", "$1", "device", "(.+)")')
    % [below, drive, figure, op];
  |||
    sum by (%s) (
      %s
    )
  ||| % [op, std.join('\n  or\n  ', std.map(of, ['read', 'write']))];

local indented(text) = std.strReplace(std.rstripChars(text, '\n'), '\n', '\n  ');

function(histograms, config) {
  local rule(record, expr) = { record: record, expr: withLabel(expr) },
  local ofVolume(figure) = 'instance_device_op:%s:%s' % [latency, figure],

  name: 'biolat-volumes',
  rules: [
    rule(ofVolume('count_rate5m'), histograms.count(latency, op)),
    rule(ofVolume('p99_rate5m'), '(%s)' % histograms.quantile(0.99, latency, op)),
    rule(ofVolume('sum_rate5m'), histograms.sum(latency, op)),
    rule('instance_device_op:biolat_volume_io_bytes:rate5m', rate('biolat_volume_io_bytes_total', op)),
    rule('instance_device:biolat_volume_failed_ios:rate5m', rate('biolat_volume_failed_ios_total', volume)),
    {
      record: below,
      comment:: |||
        The drives below each volume, at any depth, with their model. The paths of a dm-multipath device are left out, because
        the multipath device is a drive itself.
      |||,
      expr: |||
        group by (cluster, instance, device, drive, model) (
          label_replace(label_replace(
            (biolat_device_holder_info unless on (%(volume)s) biolat_path_info{device!~"nvme.+"})
              * on (%(volume)s) group_left (model)
            group by (%(volume)s, model) (biolat_device_info{kind=~"drive|"}),
            "drive", "$1", "device", "(.+)"),
            "device", "$1", "holder", "(.+)")
          and on (%(volume)s) %(isVolume)s
        )
      ||| % { volume: volume, isVolume: isVolume },
    },
    {
      record: 'instance_device_op:biolat_volume_added_seconds:mean5m',
      comment:: |||
        The mean latency of a volume minus the mean total latency of all drives below it: what encryption, snapshots, parity or
        waiting in the volume take. Only an estimate. An I/O that the volume splits is several of the drives' I/Os, and the
        drives' mean includes I/O that does not come from the volume. It is negative if the volume's I/Os take less time, such
        as small ones beside large ones of another volume.
      |||,
      expr: |||
        %(sum)s
          / (%(count)s > 0)
          - on (%(op)s) group_left ()
        (
          %(driveSum)s
            /
          (%(driveCount)s > 0)
        )
      ||| % {
        op: op,
        sum: ofVolume('sum_rate5m'),
        count: ofVolume('count_rate5m'),
        driveSum: indented(ofDrives('sum_rate5m')),
        driveCount: indented(ofDrives('count_rate5m')),
      },
    },
  ],
}

// I/O per persistent volume claim, from the figures of its volume (dm, md), otherwise of its drives.
local withModel = import 'with_model.libsonnet';

local device = 'cluster, instance, device';
local volume = 'cluster, persistentvolume';
local claim = 'cluster, namespace, persistentvolumeclaim';

local drives = 'namespace_persistentvolumeclaim_device:biolat_device_holder_info:group';
local nearest = 'namespace_persistentvolumeclaim_device:biolat_device_holder_info:nearest';

local renamed(from, to, expr) = 'label_replace(%s, "%s", "$1", "%s", "(.+)")' % [expr, to, from];
// Persistent volumes on drives, and on volumes (dm, md). Older daemons measure only drives, and expose no kind. The paths of a
// dm-multipath device are left out, because the multipath device is a drive itself.
local onDrives =
  '((biolat_device_holder_info{kind="persistent_volume"} and on (%s) biolat_device_info{kind=~"drive|"}) unless on (%s) biolat_path_info{device!~"nvme.+"})'
  % [device, device];
local onVolumes =
  '(biolat_device_holder_info{kind="persistent_volume", depth="1"} and on (%s) biolat_device_info{kind!~"drive|"})' % device;

// Only kube-state-metrics knows the claim of a volume.
local withClaim(holders) =
  withModel(|||
    group by (%(device)s, namespace, persistentvolumeclaim, persistentvolume) (
      %(holders)s
        * on (%(volume)s) group_left (namespace, persistentvolumeclaim)
      group by (%(volume)s, namespace, persistentvolumeclaim) (
        %(claims)s
      )
    )
  ||| % {
    device: device,
    volume: volume,
    holders: renamed('name', 'persistentvolume', holders),
    claims: renamed(
      'name',
      'persistentvolumeclaim',
      renamed('claim_namespace', 'namespace', 'kube_persistentvolume_claim_ref')
    ),
  });

// Of drives and volumes. For five minutes, a kernel name that is used again has figures of both.
local ofEither(level, figures, matchers='') =
  std.join(' or on (%s) ' % device, ['%s:%s%s' % [level, figure, matchers] for figure in figures]);

// Of a device, one value per op and several claims: only one of them can be on the "many" side of a join.
local byOp(aggregation, figures) =
  local of(op) = '%s * on (%s) group_left (op) (%s)' % [
    nearest,
    device,
    ofEither('instance_device_op', figures, '{op="%s"}' % op),
  ];
  |||
    %s by (%s, op) (
      %s
    )
  ||| % [aggregation, claim, std.join('\n  or\n  ', std.map(of, ['read', 'write', 'flush']))];

local byClaim(aggregation, devices, figures) =
  '%s by (%s) (%s * on (%s) group_left () (%s))' % [
    aggregation,
    claim,
    devices,
    device,
    ofEither('instance_device', figures),
  ];

function(histograms, config) {
  local perOp(aggregation, figure, ofVolumes) = {
    record: 'namespace_persistentvolumeclaim_op:' + figure,
    expr: byOp(aggregation, [figure, ofVolumes]),
  },
  local perClaim(aggregation, figures, devices=nearest) = {
    record: 'namespace_persistentvolumeclaim:' + figures[0],
    expr: byClaim(aggregation, devices, figures),
  },

  name: 'biolat-claims',
  rules: [
    {
      record: drives,
      comment:: |||
        The drives of each claim. Only kube-state-metrics knows the claim of a volume; there is none without it, or without
        biolat_device_holder_info{kind="persistent_volume"}.
      |||,
      expr: withClaim(onDrives),
    },
    {
      record: nearest,
      comment:: |||
        The measured device that each claim is on: the volume (dm, md) that is directly below it, otherwise its drives.
      |||,
      expr: |||
        %(volumes)s
          or on (cluster, instance, persistentvolume)
        %(drives)s
      ||| % {
        volumes: std.rstripChars(withClaim(onVolumes), '\n'),
        drives: drives,
      },
    },
    perOp('max', 'biolat_total_latency_seconds:p99_rate5m', 'biolat_volume_latency_seconds:p99_rate5m') + {
      comment:: |||
        The figures of a claim are those of this device. If other claims or programs use the same volume or drive, their I/O is
        included.
      |||,
    },
    perOp('sum', 'biolat_total_latency_seconds:count_rate5m', 'biolat_volume_latency_seconds:count_rate5m'),
    perOp('sum', 'biolat_io_bytes:rate5m', 'biolat_volume_io_bytes:rate5m'),
    perClaim('sum', ['biolat_failed_ios:rate5m', 'biolat_volume_failed_ios:rate5m']),
    perClaim('max', ['biolat_oldest_inflight_seconds:max'], drives) + {
      comment:: 'Of the drives: volumes have no age of the oldest I/O.',
    },
    {
      record: 'namespace_persistentvolumeclaim_device:biolat_device_holder_info:rank',
      comment:: |||
        The order of the dashboard's worst claims. Hung drives rank at 8e6 and above, because no latency is above 1,024 s.
      |||,
      expr: |||
        %(drives)s
          * on (%(device)s) group_left ()
        (max by (%(device)s) (instance_device:biolat_oldest_inflight_seconds:max) >= %(hangs)g) * 1e6
        or
        %(drives)s
          * on (%(claim)s) group_left ()
        max by (%(claim)s) (namespace_persistentvolumeclaim_op:biolat_total_latency_seconds:p99_rate5m)
        or
        %(drives)s * 0
      ||| % { drives: drives, device: device, claim: claim, hangs: config.worstHangSeconds },
    },
  ],
}

// I/O per persistent volume claim, from the figures of its drives.
local withModel = import 'with_model.libsonnet';

local drive = 'cluster, instance, device';
local volume = 'cluster, persistentvolume';
local claim = 'cluster, namespace, persistentvolumeclaim';

local drives = 'namespace_persistentvolumeclaim_device:biolat_device_holder_info:group';

local renamed(from, to, expr) = 'label_replace(%s, "%s", "$1", "%s", "(.+)")' % [expr, to, from];
// Only of drives: a volume between the claim and the drive (LVM, md) has no series like those of drives.
local volumes(matchers) =
  '(biolat_device_holder_info{%s} and on (%s) biolat_device_info{kind=~"drive|"})' % [matchers, drive];

// Of a drive, one value per op and several claims: only one of them can be on the "many" side of a join.
local byOp(aggregation, figure) =
  local of(op) = '%s * on (%s) group_left (op) %s{op="%s"}' % [drives, drive, figure, op];
  |||
    %s by (%s, op) (
      %s
    )
  ||| % [aggregation, claim, std.join('\n  or\n  ', std.map(of, ['read', 'write', 'flush']))];

local byClaim(aggregation, figure) = '%s by (%s) (%s * on (%s) group_left () %s)' % [aggregation, claim, drives, drive, figure];

function(histograms, config) {
  local perOp(aggregation, figure) = {
    record: 'namespace_persistentvolumeclaim_op:' + figure,
    expr: byOp(aggregation, 'instance_device_op:' + figure),
  },
  local perClaim(aggregation, figure) = {
    record: 'namespace_persistentvolumeclaim:' + figure,
    expr: byClaim(aggregation, 'instance_device:' + figure),
  },

  name: 'biolat-claims',
  rules: [
    {
      record: drives,
      comment:: |||
        The drives of each claim. Only kube-state-metrics knows the claim of a volume; there is none without it, or without
        biolat_device_holder_info{kind="persistent_volume"}. Of a stack that is measured at several levels, such as multipath,
        only the nearest level counts.
      |||,
      expr: withModel(|||
        group by (%(drive)s, namespace, persistentvolumeclaim, persistentvolume) (
          %(volumes)s
            * on (%(volume)s) group_left (namespace, persistentvolumeclaim)
          group by (%(volume)s, namespace, persistentvolumeclaim) (
            %(claims)s
          )
        )
      ||| % {
        drive: drive,
        volume: volume,
        volumes: renamed(
          'name',
          'persistentvolume',
          '%s or on (cluster, instance, name) %s' % [
            volumes('kind="persistent_volume", depth="1"'),
            volumes('kind="persistent_volume"'),
          ]
        ),
        claims: renamed(
          'name',
          'persistentvolumeclaim',
          renamed('claim_namespace', 'namespace', 'kube_persistentvolume_claim_ref')
        ),
      }),
    },
    {
      record: 'namespace_persistentvolumeclaim_device:biolat_device_holder_info:rank',
      comment:: |||
        The order of the dashboard's worst claims. Hung drives rank at 8e6 and above, because no latency is above 1,024 s.
      |||,
      expr: |||
        %(drives)s
          * on (%(drive)s) group_left ()
        (
          (max by (%(drive)s) (instance_device:biolat_oldest_inflight_seconds:max) >= %(hangs)g) * 1e6
          or
          max by (%(drive)s) (instance_device_op:biolat_total_latency_seconds:p99_rate5m{op=~"read|write|flush"})
        )
        or
        %(drives)s * 0
      ||| % { drives: drives, drive: drive, hangs: config.worstHangSeconds },
    },
    perOp('max', 'biolat_total_latency_seconds:p99_rate5m') + {
      comment:: |||
        The figures of a claim are those of its drives. If other claims or programs use the same drive, their I/O is included.
      |||,
    },
    perOp('sum', 'biolat_total_latency_seconds:count_rate5m'),
    perOp('sum', 'biolat_io_bytes:rate5m'),
    perClaim('sum', 'biolat_failed_ios:rate5m'),
    perClaim('max', 'biolat_oldest_inflight_seconds:max'),
  ],
}

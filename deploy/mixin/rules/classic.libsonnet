// Expressions for classic histograms, with the same functions as native.libsonnet.

// The buckets that biolat exposes by default: powers of four of a second from 2^-16 s, and 32 s.
local bounds = [std.pow(4, exponent) for exponent in std.range(-8, 1)] + [32];

// Prometheus 3 writes integers with a decimal, older versions do not.
local bucket(bound) = if bound == std.floor(bound) then 'le=~"%d|%d.0"' % [bound, bound] else 'le="%s"' % bound;

{
  local rate(metric, by) = 'sum by (%s) (rate(%s[5m]))' % [by, metric],

  count(metric, by):: rate(metric + '_count', by),
  sum(metric, by):: rate(metric + '_sum', by),
  quantile(q, metric, by):: 'histogram_quantile(%g, %s) >= 0' % [q, rate(metric + '_bucket', by + ', le')],

  recordedCount(histogram, by):: 'sum by (%s) (%s{le="+Inf"})' % [by, histogram],
  late(limit, histogram, matchers, by)::
    assert std.member(bounds, limit) : '%g s is not the bound of a classic bucket: %s' % [limit, bounds];
    |||
      (
        sum by (%(by)s) (%(histogram)s{%(matchers)s, le="+Inf"})
          - sum by (%(by)s) (%(histogram)s{%(matchers)s, %(within)s})
      )
    ||| % { by: by, histogram: histogram, matchers: matchers, within: bucket(limit) },

  metric(name):: name + '_bucket',
  level: '_le',
  le: ', le',
}

// A service level that classic histograms cannot tell: no bucket ends at 10 ms.
(
  (import '../mixin.libsonnet') {
    _config+:: { histograms: 'classic', slo+: { enabled: true, targets: { nvme: { read: 0.01 } } } },
  }
).prometheusRules

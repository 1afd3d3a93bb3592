// A service level that classic histograms cannot measure: no bucket ends at 10 ms.
(
  (import '../mixin.libsonnet') {
    _config+:: { histograms: 'classic', slo+: { enabled: true, targets: { nvme: { read: 0.01 } } } },
  }
).prometheusRules

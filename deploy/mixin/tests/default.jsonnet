// The dashboards with the default _config.
local dashboards(histograms) =
  ((import '../mixin.libsonnet') { _config+:: { histograms: histograms } }).grafanaDashboards;

dashboards('native') + dashboards('classic')

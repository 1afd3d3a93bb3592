// The rules files in deploy/prometheus: the default _config, as YAML with comments or as objects.
local mixin = import 'mixin.libsonnet';
local yaml = import 'yaml.libsonnet';

local isSloGroup(group) = std.startsWith(group.name, 'biolat-slo');

// Rules and alerts for service levels, in one optional file.
local slo(histograms) =
  local all = mixin { _config+:: { histograms: histograms, slo+: { enabled: true } } };
  { groups: std.filter(isSloGroup, all.prometheusRules.groups + all.prometheusAlerts.groups) };

local recording(histograms) = (mixin { _config+:: { histograms: histograms } }).prometheusRules;

function(format='yaml') {
  local file(header, rules) = if format == 'yaml' then yaml(header, rules) else rules,

  'alerts.yml': file(importstr 'headers/alerts.txt', mixin.prometheusAlerts),
  'recording.yml': file(importstr 'headers/recording.txt', recording('native')),
  'recording-classic.yml': file(importstr 'headers/recording-classic.txt', recording('classic')),
  'slo.yml': file(importstr 'headers/slo.txt', slo('native')),
  'slo-classic.yml': file(importstr 'headers/slo-classic.txt', slo('classic')),
}

// The files in deploy/prometheus: the rules with the default _config, as YAML with comments, or as objects.
local mixin = import 'mixin.libsonnet';
local yaml = import 'yaml.libsonnet';

local recording(histograms) = (mixin { _config+:: { histograms: histograms } }).prometheusRules;

function(format='yaml') {
  local file(header, rules) = if format == 'yaml' then yaml(header, rules) else rules,

  'alerts.yml': file(importstr 'headers/alerts.txt', mixin.prometheusAlerts),
  'recording.yml': file(importstr 'headers/recording.txt', recording('native')),
  'recording-classic.yml': file(importstr 'headers/recording-classic.txt', recording('classic')),
}

// Figures of a device, with its model.
function(expr) |||
  %s
    * on (cluster, instance, device) group_left (model)
  group by (cluster, instance, device, model) (biolat_device_info)
||| % std.rstripChars(expr, '\n')

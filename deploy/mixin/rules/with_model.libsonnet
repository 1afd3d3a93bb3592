// Adds the model to figures of a device.
function(expr) |||
  %s
    * on (cluster, instance, device) group_left (model)
  group by (cluster, instance, device, model) (biolat_device_info)
||| % std.rstripChars(expr, '\n')

// Adapts the expressions of rules and dashboards to _config: adds matchers to biolat's series and renames the cluster label.
local isNameCharacter(character) =
  character >= 'a' && character <= 'z' || character >= '0' && character <= '9' || character == '_' || character == ':';

// The length of the name at the start of a text.
local nameLength(text, from=0) =
  if from < std.length(text) && isNameCharacter(text[from]) then nameLength(text, from + 1) else from;

// Splits a text at a string: before 0.20, jsonnet splits only at single characters.
local split(text, at) = std.split(std.strReplace(text, at, '\u0000'), '\u0000');

function(config) {
  // Adds the matchers to each series that biolat exposes. Recorded names are left alone: there `biolat_` follows a colon.
  local select(text) =
    local parts = split(text, 'biolat_');
    local selected(part) =
      local length = nameLength(part);
      local name = std.substr(part, 0, length);
      local rest = std.substr(part, length, std.length(part) - length);
      local matchers = '{' + config.seriesSelector;
      name + (
        if std.startsWith(rest, '{}') then matchers + std.substr(rest, 1, std.length(rest) - 1)
        else if std.startsWith(rest, '{') then matchers + ', ' + std.substr(rest, 1, std.length(rest) - 1)
        else matchers + '}' + rest
      );
    local isExposed(before) = before == '' || !isNameCharacter(before[std.length(before) - 1]);
    std.join('biolat_', [
      if place > 0 && isExposed(parts[place - 1]) then selected(parts[place]) else parts[place]
      for place in std.range(0, std.length(parts) - 1)
    ]),

  // Renames the label, but not the dashboard's variable.
  local renameCluster(text) =
    std.strReplace(
      std.strReplace(std.strReplace(text, '$cluster', '\u0000'), 'cluster', config.clusterLabel),
      '\u0000',
      '$cluster'
    ),

  adapt(text):: renameCluster(if config.seriesSelector == '' then text else select(text)),
}

// Renders rules as readable YAML: with comments, expressions in blocks, and wrapped texts.
local width = 132;

local has(text, part) = std.strReplace(text, part, '') != text;
local last(array) = array[std.length(array) - 1];
local init(array) = array[:std.length(array) - 1];
local lines(text) =
  local parts = std.split(text, '\n');
  if last(parts) == '' then init(parts) else parts;
local indented(by, texts) = [if text == '' then '' else by + text for text in texts];

// Wraps a text between words.
local wrapped(text, length) =
  local add(lines, word) =
    if std.length(last(lines)) + 1 + std.length(word) > length then lines + [word]
    else init(lines) + [last(lines) + ' ' + word];
  local words = std.split(text, ' ');
  std.foldl(add, words[1:], [words[0]]);

// A scalar, quoted if YAML could read it as anything but this text.
local scalar(text) =
  local isPlain = !has('{[]}>|*&!%#`@,?:-"\' ', text[0]) && !has(text, ': ') && !has(text, ' #') && !std.endsWith(text, ':');
  if isPlain then text else "'%s'" % std.strReplace(text, "'", "''");

local field(indent, key, text) =
  local inOneLine = '%s%s: %s' % [indent, key, scalar(text)];
  if has(text, '\n') then [indent + key + ': |'] + indented(indent + '  ', lines(text))
  else if std.length(inOneLine) <= width || !has(text, ' ') then [inOneLine]
  else [indent + key + ': >-'] + indented(indent + '  ', wrapped(text, width - std.length(indent) - 2));

local comment(text) = [std.rstripChars('# ' + line, ' ') for line in lines(text)];
local commentOf(rule) = if std.objectHasAll(rule, 'comment') && rule.comment != '' then comment(rule.comment) else [];

local recording(rule) =
  indented('      ', commentOf(rule) + ['- record: ' + rule.record])
  + field('        ', 'expr', rule.expr);

local alert(rule) =
  local labels = ['%s: %s' % [name, rule.labels[name]] for name in std.objectFields(rule.labels)];
  ['      - alert: ' + rule.alert]
  + indented('        ', commentOf(rule))
  + field('        ', 'expr', rule.expr)
  + (if std.objectHas(rule, 'for') then ['        for: ' + rule['for']] else [])
  + ['        labels: {%s}' % std.join(', ', labels), '        annotations:']
  + std.flattenArrays([
    field('          ', name, rule.annotations[name])
    for name in ['summary', 'description', 'runbook', 'runbook_url']
  ])
  + [''];

local group(it) =
  ['  - name: ' + it.name]
  + (if std.objectHas(it, 'interval') then ['    interval: ' + it.interval] else [])
  + ['    rules:']
  + (if std.objectHas(it.rules[0], 'alert') then std.flattenArrays([alert(rule) for rule in it.rules])
     else std.flattenArrays([recording(rule) for rule in it.rules]) + ['']);

// A rules file. jsonnet writes the last newline.
function(header, rules)
  std.join('\n', comment(header) + ['groups:'] + init(std.flattenArrays([group(it) for it in rules.groups])))

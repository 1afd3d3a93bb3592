// A number as prose: a word up to twelve.
function(number)
  local words = ['zero', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine', 'ten', 'eleven', 'twelve'];
  if number >= 0 && number <= 12 && number == std.floor(number) then words[number] else '%g' % number

-- Return the newest dead letters of a job without the contents of their records, which may have megabytes.
-- KEYS[1] the stream of dead letters
-- ARGV[1] the highest id, as XREVRANGE takes it
-- ARGV[2] most letters
-- Returns {number of all letters, {{id, reason or '', bytes of a record of which only the first are kept or '', uri or '',
-- {field, bytes, ...}}, ...}}.
local found, last = {}, ARGV[1]
for i = 1, tonumber(ARGV[2]) do
  local letter = redis.call('XREVRANGE', KEYS[1], last, '-', 'COUNT', 1)[1]
  if not letter then
    break
  end
  local came, reason, cut, uri, fields = letter[2], '', '', '', {}
  for at = 1, #came, 2 do
    if at == 1 and came[at] == 'dead_letter' then
      reason = came[at + 1]
    elseif at == 3 and came[at] == 'dead_letter_cut' then
      cut = came[at + 1]
    else
      if came[at] == 'uri' then
        uri = came[at + 1]
      end
      fields[#fields + 1] = came[at]
      fields[#fields + 1] = #came[at + 1]
    end
  end
  found[i] = {letter[1], reason, cut, uri, fields}
  last = '(' .. letter[1]
end
return {redis.call('XLEN', KEYS[1]), found}

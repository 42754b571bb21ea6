-- Make a stream that has no id of some time or later: entries with later ids get ids of now. An entry of one field is left out.
-- KEYS[1] the stream
-- ARGV[1] the time, Unix ms
if redis.call('EXISTS', KEYS[1]) == 0 then
  return
end
local life_ms, entries = redis.call('PTTL', KEYS[1]), redis.call('XRANGE', KEYS[1], '-', '+')
redis.call('DEL', KEYS[1])
redis.call('XGROUP', 'CREATE', KEYS[1], 'client', '$', 'MKSTREAM')
for _, entry in ipairs(entries) do
  local id, fields = unpack(entry)
  if tonumber(string.match(id, '^%d+')) >= tonumber(ARGV[1]) then
    id = '*'
  end
  if #fields > 2 then
    redis.call('XADD', KEYS[1], id, unpack(fields))
  end
end
if life_ms > 0 then
  redis.call('PEXPIRE', KEYS[1], life_ms)
end

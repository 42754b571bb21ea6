-- Remove consumers that hold no entry: idle consumers, and consumers that leave.
-- KEYS[1] the stream
-- ARGV[1] the group, ARGV[2] ms after which a consumer is idle, ARGV[3 ...] names of the consumers that leave
-- Returns the names of the removed consumers. Check and removal are one step, because a removal drops the consumer's entries.
local leaves = {}
for i = 3, #ARGV do
  leaves[ARGV[i]] = true
end
local removed = {}
for _, told in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local consumer = {}
  for i = 1, #told, 2 do
    consumer[told[i]] = told[i + 1]
  end
  if consumer.pending == 0 and (leaves[consumer.name] or consumer.idle > tonumber(ARGV[2])) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], consumer.name)
    removed[#removed + 1] = consumer.name
  end
end
return removed

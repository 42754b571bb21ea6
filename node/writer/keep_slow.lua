-- Keep the slowest records of the last hour.
-- KEYS[1] slow records of the job: SlowRecord as JSON, scored by the ms that the record took
-- ARGV[1] the record
-- ARGV[2] the ms that it took
-- ARGV[3] Unix time in ms before which a record is too old
-- ARGV[4] number of records that are kept
-- ARGV[5] ms after the last record for which they are kept
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
local slow, left = redis.call('ZRANGE', KEYS[1], 0, -1), tonumber(ARGV[4])
for i = #slow, 1, -1 do
  local at_ms = tonumber(slow[i]:match('"at_ms":(%d+)'))
  if left > 0 and at_ms and at_ms >= tonumber(ARGV[3]) then
    left = left - 1
  else
    redis.call('ZREM', KEYS[1], slow[i])
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[5])

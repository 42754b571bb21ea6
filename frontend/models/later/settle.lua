-- Note the outcome of an attempt to post a result, unless the lease has ended, or the call was finished again meanwhile.
-- KEYS[1] the callbacks. KEYS[2] the call
-- ARGV[1] the end of the lease. ARGV[2] ms until the next attempt, or an empty text for no further attempt
-- Returns 1 if the outcome was noted, else 0.
if redis.call('ZSCORE', KEYS[1], KEYS[2]) ~= ARGV[1] then
  return 0
end
if ARGV[2] == '' or not redis.call('HGET', KEYS[2], 'left') then
  redis.call('ZREM', KEYS[1], KEYS[2])
  return 1
end
local time = redis.call('TIME')
redis.call('HSET', KEYS[2], 'tried', 1 + (redis.call('HGET', KEYS[2], 'tried') or 0))
redis.call('ZADD', KEYS[1], string.format('%d', time[1] * 1000 + ARGV[2]), KEYS[2])
return 1

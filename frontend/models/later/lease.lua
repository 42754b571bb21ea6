-- Lease finished calls whose results are due to be posted. Nobody else gets them before the lease ends.
-- KEYS[1] the callbacks
-- ARGV[1] duration of the lease in ms. ARGV[2] most calls
-- Returns the end of the lease, and the keys of the calls.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ends = string.format('%d', now + ARGV[1])
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[2])
for _, call in ipairs(due) do
  redis.call('ZADD', KEYS[1], ends, call)
end
return {ends, due}

-- List a heartbeat: who looks for the nodes need not look at every key of this Redis.
-- KEYS[1] the names of all heartbeats, by the Unix time in s at which each was told last
-- ARGV[1] the key of the heartbeat
-- To forget first, those that have not been told for an hour: that is never refused for want of memory, and after a write that
-- went well Redis refuses a script nothing.
local now_s = tonumber(redis.call('TIME')[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now_s - 3600)
redis.call('ZADD', KEYS[1], now_s, ARGV[1])

-- List a heartbeat, so that a search for the nodes need not scan every key of Redis.
-- KEYS[1] sorted set of the keys of all heartbeats, scored by the Unix time in s of the last heartbeat
-- ARGV[1] key of the heartbeat
-- Remove entries older than an hour first: Redis never refuses the removal for lack of memory. After a successful write,
-- Redis refuses no further command of a script.
local now_s = tonumber(redis.call('TIME')[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now_s - 3600)
redis.call('ZADD', KEYS[1], now_s, ARGV[1])

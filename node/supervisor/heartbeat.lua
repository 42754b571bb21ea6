-- What a node says of itself, and what admission has to know.
-- KEYS[1] its heartbeat; KEYS[2] the limits of the job; KEYS[3] why nothing is admitted; KEYS[4] the stream;
-- KEYS[5] the stream of dead letters
-- ARGV[1] the heartbeat, a JSON object that lacks its end: what only Redis knows; ARGV[2] its life in ms;
-- ARGV[3] maxQueueLength; ARGV[4] why nothing is admitted, empty: nothing is wrong; ARGV[5] the consumer group

-- What Redis answers; nil when it refuses: a stream that is missing or none must not keep a node silent.
local function asked(...)
  local reply = redis.pcall(...)
  return not (type(reply) == 'table' and reply.err) and reply or nil
end

-- The id of the oldest entry. What is pending was read before the rest, and Redis tells its id without the record, which may have
-- megabytes; only while nothing is pending, the record is copied.
local function oldest()
  local pending = asked('XPENDING', KEYS[4], ARGV[5])
  if pending and pending[1] > 0 then
    return pending[2]
  end
  local entry = (asked('XRANGE', KEYS[4], '-', '+', 'COUNT', 1) or {})[1]
  return entry and entry[1]
end

local backlog, oldest_ms = asked('XLEN', KEYS[4]) or 0, 0
local id = backlog > 0 and oldest()
if id then
  local now = redis.call('TIME')
  oldest_ms = math.max(0, now[1] * 1000 + now[2] / 1000 - tonumber(id:match('^%d+')))
end
local known = string.format(
  ',"backlog":%d,"oldest_ms":%.0f,"dead_letters":%d}', backlog, oldest_ms, asked('XLEN', KEYS[5]) or 0)

-- DEL first: it is never refused for want of memory, and after a write that went well Redis refuses a script nothing.
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1] .. known, 'PX', ARGV[2])
redis.call('HSET', KEYS[2], 'maxQueueLength', ARGV[3])
if ARGV[4] == '' then
  redis.call('DEL', KEYS[3])
else
  redis.call('SET', KEYS[3], ARGV[4], 'PX', ARGV[2])
end

-- Write the heartbeat of a node, and the limits for admission.
-- KEYS[1] heartbeat of the node
-- KEYS[2] limits of the job
-- KEYS[3] reason for admitting no records
-- KEYS[4] stream of the job
-- KEYS[5] stream of dead letters
-- ARGV[1] heartbeat: a JSON object without its end. The script adds the fields that only Redis knows.
-- ARGV[2] life of the heartbeat in ms
-- ARGV[3] maxQueueLength
-- ARGV[4] reason for admitting no records, empty while records are admitted
-- ARGV[5] consumer group

-- Return the reply of Redis, or nil for an error. A missing stream, or a key of a different type, must not silence a node.
local function asked(...)
  local reply = redis.pcall(...)
  return not (type(reply) == 'table' and reply.err) and reply or nil
end

-- Return the id of the oldest entry. Pending entries were read before the rest, and XPENDING returns an id without copying the
-- record, which may have megabytes. XRANGE copies the record, and is called only without pending entries.
local function oldest()
  local pending = asked('XPENDING', KEYS[4], ARGV[5])
  if pending and pending[1] > 0 then
    return pending[2]
  end
  local entry = (asked('XRANGE', KEYS[4], '-', '+', 'COUNT', 1) or {})[1]
  return entry and entry[1]
end

local backlog, oldest_ms = asked('XLEN', KEYS[4]) or 0, 0
local made_ms = backlog > 0 and (oldest() or ''):match('^%d+')
if made_ms and #made_ms >= 13 then  -- an id of fewer digits is one of a caller's own, and tells no time
  local now = redis.call('TIME')
  oldest_ms = math.max(0, now[1] * 1000 + now[2] / 1000 - tonumber(made_ms))
end
local known = string.format(
  ',"backlog":%d,"oldest_ms":%.0f,"dead_letters":%d}', backlog, oldest_ms, asked('XLEN', KEYS[5]) or 0)

-- DEL first: Redis never refuses DEL for lack of memory. After a successful write, Redis refuses no further command of a script.
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1] .. known, 'PX', ARGV[2])
redis.call('HSET', KEYS[2], 'maxQueueLength', ARGV[3])
if ARGV[4] == '' then
  redis.call('DEL', KEYS[3])
else
  redis.call('SET', KEYS[3], ARGV[4], 'PX', ARGV[2])
end
return backlog

-- Publish the results of a batch: one outcome per record, whoever comes first.
-- KEYS[1] the stream; KEYS[2] the stream of dead letters; KEYS[2 + i] where the result of row i goes
-- ARGV[1] the consumer group; ARGV[2] time to live of a result hash in ms, 0 keeps it; ARGV[3] dead letters to keep
-- ARGV[4 ...] for each row: entry id, 'hash' or 'reply', why it is a dead letter, how many arguments, and these: field, value, ...
--     Why: empty for others, else a JSON object that lacks its end: the deliveries, which only Redis knows.
-- Returns the numbers of the rows (from 1) that had been finished before, and are left as they are.
local group, ttl, kept = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local function bury(id, why, deliveries)
  local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
  if entry and kept > 0 then
    local reason = why .. ',"deliveries":' .. deliveries .. '}'
    -- Lua puts no more than 8000 values on its stack.
    redis.call('XADD', KEYS[2], 'MAXLEN', kept, '*', 'dead_letter', reason, unpack(entry[2], 1, math.min(#entry[2], 7000)))
  end
end

local finished, repeated = {}, {}
local at = 4
for i = 3, #KEYS do
  local id, why, last = ARGV[at], ARGV[at + 2], at + 3 + tonumber(ARGV[at + 3])
  -- pcall: of a group that is gone XACK only says 0.
  local pending = why ~= '' and redis.pcall('XPENDING', KEYS[1], group, id, id, 1)[1]
  -- XACK is the fence: 0 means that somebody else has finished this record.
  if redis.call('XACK', KEYS[1], group, id) == 1 then
    finished[#finished + 1] = id
    if pending then
      -- pcall, here and below: what is at fault with one row must not stop the rows behind it.
      pcall(bury, id, why, pending[4])
    end
    if ARGV[at + 1] == 'reply' then
      redis.pcall('XADD', KEYS[i], 'NOMKSTREAM', '*', unpack(ARGV, at + 4, last))
    else
      redis.call('DEL', KEYS[i])
      redis.call('HSET', KEYS[i], unpack(ARGV, at + 4, last))
      if ttl > 0 then
        redis.call('PEXPIRE', KEYS[i], ttl)
      end
    end
  else
    repeated[#repeated + 1] = i - 2
  end
  at = last + 1
end
for first = 1, #finished, 1000 do
  redis.call('XDEL', KEYS[1], unpack(finished, first, math.min(first + 999, #finished)))
end
return repeated

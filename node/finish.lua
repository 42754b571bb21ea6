-- Publish the results of a batch: one outcome per record, whoever comes first.
-- KEYS[1] the stream; KEYS[1 + i] where the result of row i goes
-- ARGV[1] the consumer group; ARGV[2] time to live of a result hash in ms, 0 keeps it
-- ARGV[3 ...] for each row: entry id, 'hash' or 'reply', how many arguments, and these: field, value, field, value, ...
-- Returns how many rows this call finished; the others had been finished before, and are left as they are.
local group, ttl = ARGV[1], tonumber(ARGV[2])
local finished = {}
local at = 3
for i = 2, #KEYS do
  local id, last = ARGV[at], at + 2 + tonumber(ARGV[at + 2])
  -- XACK is the fence: 0 means that somebody else has finished this record.
  if redis.call('XACK', KEYS[1], group, id) == 1 then
    finished[#finished + 1] = id
    if ARGV[at + 1] == 'reply' then
      -- pcall: a reply key that is no stream must not stop the rows behind it.
      redis.pcall('XADD', KEYS[i], 'NOMKSTREAM', '*', unpack(ARGV, at + 3, last))
    else
      redis.call('DEL', KEYS[i])
      redis.call('HSET', KEYS[i], unpack(ARGV, at + 3, last))
      if ttl > 0 then
        redis.call('PEXPIRE', KEYS[i], ttl)
      end
    end
  end
  at = last + 1
end
-- In pieces: Lua puts no more than 8000 values on its stack.
for first = 1, #finished, 1000 do
  redis.call('XDEL', KEYS[1], unpack(finished, first, math.min(first + 999, #finished)))
end
return #finished

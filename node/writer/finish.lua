-- Publish the results of a batch, and the dead letters among its records (address.py makes keys and arguments).
-- Each record gets one result: the first result published counts.
-- KEYS[1] the stream
-- KEYS[2] the stream of dead letters
-- then the reply streams and calls, then the result hashes, in the order of the rows without either
-- ARGV[1] the consumer group
-- ARGV[2] time to live of a result hash in ms, 0 keeps the hash
-- ARGV[3] number of dead letters to keep
-- ARGV[4] bytes of memory that dead letters may take
-- ARGV[5] the field `batch` of replies
-- ARGV[6] number of reply streams and calls
-- ARGV[7] number of rows that become dead letters
-- then for each dead letter: the number of its row (from 1), and the field `dead_letter`
-- then for each row: entry id, and
--     for a reply: the number of the reply stream (from 1), uri, packed result
--     for a call that is answered later: the number of the call (from 1, and negative), uri, packed result
--     for a hash: 0, the number of arguments that follow, and field, value, ...
--     for no result: 0, 0
-- Returns the numbers of the rows that had been finished before. The script leaves the results of such rows as they are.
local group, ttl, kept, kept_bytes, batch = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local hash_key = 2 + tonumber(ARGV[6])
-- Lua's stack holds no more than 8000 values. most_bytes limits a reply, because a client reads an entry as a whole.
local most_values, most_bytes = 7000, 65536
-- Of a record with more than a sixteenth of kept_bytes, a dead letter keeps the first bytes.
local most_letter_bytes, first_bytes = kept_bytes / 16, 16384

local at = 8
local reasons = {}
for _ = 1, tonumber(ARGV[7]) do
  reasons[tonumber(ARGV[at])] = ARGV[at + 1]
  at = at + 2
end

-- Return the fields of a record, or the first fields with the first bytes if the record is large.
local function preserved(fields)
  local size = 0
  for _, part in ipairs(fields) do
    size = size + #part
  end
  if size <= most_letter_bytes and #fields <= most_values then
    return fields
  end
  local cut, left = {'dead_letter_cut', size}, first_bytes
  for i = 1, math.min(#fields, most_values) do
    cut[#cut + 1] = fields[i]:sub(1, left)
    left = left - #cut[#cut]
    if left == 0 and i % 2 == 0 then
      break
    end
  end
  return cut
end

local function bury(id, reason)
  local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
  if not entry or kept == 0 then
    return
  end
  redis.call('XADD', KEYS[2], 'MAXLEN', kept, '*', 'dead_letter', reason, unpack(preserved(entry[2])))
  repeat
    -- An error, of a user who may not ask, is a table.
    local used = redis.pcall('MEMORY', 'USAGE', KEYS[2], 'SAMPLES', 0)
    local is_large = type(used) == 'number' and used > kept_bytes
    if is_large then
      redis.call('XTRIM', KEYS[2], 'MAXLEN', redis.call('XLEN', KEYS[2]) - 1)
    end
  until not is_large
end

local replies = {}

local function send(stream)
  local reply = replies[stream]
  replies[stream] = nil
  redis.call('XADD', KEYS[2 + stream], 'NOMKSTREAM', '*', unpack(reply, 1, reply.count))
end

local function answer(stream, uri, packed)
  local reply = replies[stream]
  if not reply then
    reply = {'batch', batch, count = 2, bytes = 0}
    replies[stream] = reply
  end
  local count = reply.count + 2
  reply[count - 1], reply[count] = uri, packed
  reply.count, reply.bytes = count, reply.bytes + #packed
  if count >= most_values or reply.bytes >= most_bytes then
    send(stream)
  end
end

-- Keep a result in the hash of its call. A call that has been given up, or whose time is over, has no hash any more.
local function keep(call, uri, packed)
  local key = KEYS[2 + call]
  local left = tonumber(redis.call('HGET', key, 'left'))
  if not left then
    return
  end
  -- A replayed dead letter has a result, which the new one replaces.
  if redis.call('HSET', key, uri, packed) == 1 then
    left = left - 1
    redis.call('HSET', key, 'left', left)
  end
  if left == 0 and redis.call('HGET', key, 'callback') then
    redis.call('HSET', key, 'finished', 1 + (redis.call('HGET', key, 'finished') or 0))
    -- Not among KEYS, so that a node without a right to the callbacks still publishes results.
    redis.call('ZADD', 'cluster-serving.callbacks', 0, key)
  end
end

local finished, repeated = {}, {}
local row, total = 0, #ARGV
while at <= total do
  row = row + 1
  local id, stream = ARGV[at], tonumber(ARGV[at + 1])
  local first, last = at + 2, at + 3
  if stream == 0 then
    first, last = at + 3, at + 2 + tonumber(ARGV[at + 2])
    hash_key = hash_key + (last >= first and 1 or 0)
  end
  -- XACK is the fence: 0 means that the record was finished before.
  if redis.call('XACK', KEYS[1], group, id) == 1 then
    finished[#finished + 1] = id
    if reasons[row] then
      -- pcall, here and below: an error in one row must not stop the rows behind it.
      pcall(bury, id, reasons[row])
    end
    if stream > 0 then
      pcall(answer, stream, ARGV[first], ARGV[last])
    elseif stream < 0 then
      pcall(keep, -stream, ARGV[first], ARGV[last])
    elseif last >= first then
      redis.call('DEL', KEYS[hash_key])
      redis.call('HSET', KEYS[hash_key], unpack(ARGV, first, last))
      if ttl > 0 then
        redis.call('PEXPIRE', KEYS[hash_key], ttl)
      end
    end
  else
    repeated[#repeated + 1] = row
  end
  at = last + 1
end
for stream in pairs(replies) do
  pcall(send, stream)
end
for first = 1, #finished, 1000 do
  redis.call('XDEL', KEYS[1], unpack(finished, first, math.min(first + 999, #finished)))
end
return repeated

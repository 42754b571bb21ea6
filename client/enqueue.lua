-- Admit records to a job's stream, in order, while there is room.
-- KEYS[1] the stream; KEYS[2] the limits hash, whose maxQueueLength is the room (absent or 0: no limit)
-- KEYS[3] a text that says why nothing is admitted now (absent: nothing is wrong)
-- ARGV[1] how many records; then for each: how many arguments, and these: field, value, field, value, ...
-- A record whose last field is `deadline` has there how many ms it may wait, and is stored with the Unix time in ms at which
-- that ends: on the clock of Redis, which every node can ask for.
-- Returns the ids of the admitted ones, fewer than were sent when the stream filled up; or the text of KEYS[3].
local why = redis.call('GET', KEYS[3])
if why then
  return why
end
local limit = tonumber(redis.call('HGET', KEYS[2], 'maxQueueLength') or 0)
local count = tonumber(ARGV[1])
if limit > 0 then
  count = math.min(count, limit - redis.call('XLEN', KEYS[1]))
end
local ids, ends = {}, {}
local at = 2
for i = 1, count do
  local last = at + tonumber(ARGV[at])
  if ARGV[last - 1] == 'deadline' then
    local life = ARGV[last]
    if not ends[life] then
      local time = redis.call('TIME')
      ends[life] = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + life)
    end
    ARGV[last] = ends[life]
  end
  ids[i] = redis.call('XADD', KEYS[1], '*', unpack(ARGV, at + 1, last))
  at = last + 1
end
return ids

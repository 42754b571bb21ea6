-- Admit records to a job's stream, in order, while there is room.
-- KEYS[1] the stream; KEYS[2] the limits hash, whose maxQueueLength is the room (absent or 0: no limit)
-- ARGV[1] how many records; then for each: how many arguments, and these: field, value, field, value, ...
-- Returns the ids of the admitted ones: fewer than were sent when the stream filled up.
local limit = tonumber(redis.call('HGET', KEYS[2], 'maxQueueLength') or 0)
local count = tonumber(ARGV[1])
if limit > 0 then
  count = math.min(count, limit - redis.call('XLEN', KEYS[1]))
end
local ids = {}
local at = 2
for i = 1, count do
  local last = at + tonumber(ARGV[at])
  ids[i] = redis.call('XADD', KEYS[1], '*', unpack(ARGV, at + 1, last))
  at = last + 1
end
return ids

-- Put one dead letter back into a job's stream as a new record, and delete the letter.
-- KEYS[1] the stream of dead letters
-- KEYS[2] the stream for the new record
-- ARGV[1] the letter's id
-- Returns the id of the new record, an empty string when only the first bytes of the record are kept, or nil when the letter does
-- not exist. When the XADD fails, nothing has changed.
local letter = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1]
if not letter then
  return false
end
local came = letter[2]
if came[3] == 'dead_letter_cut' then
  return ''
end
local fields = {}
for i = came[1] == 'dead_letter' and 3 or 1, #came, 2 do
  -- The deadline has passed, and the client that waited for the reply has gone: the result goes to the result hash. A call that is
  -- answered later is a hash that waits for the result as long as it exists. A reply stream is none.
  local waits = came[i] == 'reply' and type(redis.pcall('HGET', came[i + 1], 'left')) == 'string'
  if waits or (came[i] ~= 'reply' and came[i] ~= 'deadline') then
    fields[#fields + 1] = came[i]
    fields[#fields + 1] = came[i + 1]
  end
end
local id = redis.call('XADD', KEYS[2], '*', unpack(fields))
redis.call('XDEL', KEYS[1], ARGV[1])
return id

-- Move the oldest entries of other streams to the end of a job's stream. It is one step: no entry is lost, and none comes twice.
-- KEYS[1] the job's stream, KEYS[2 ...] the other streams
-- ARGV[1] number of entries to move from each stream at most, ARGV[2 ...] the fields to keep
-- Returns the largest number of entries moved from one stream. An entry without any of the fields is removed.
local kept = {}
for i = 2, #ARGV do
  kept[ARGV[i]] = true
end
local most = 0
for i = 2, #KEYS do
  local entries = redis.call('XRANGE', KEYS[i], '-', '+', 'COUNT', ARGV[1])
  for _, entry in ipairs(entries) do
    local fields = {}
    for j = 1, #entry[2], 2 do
      if kept[entry[2][j]] then
        fields[#fields + 1], fields[#fields + 2] = entry[2][j], entry[2][j + 1]
      end
    end
    if #fields > 0 then
      redis.call('XADD', KEYS[1], '*', unpack(fields))
    end
    redis.call('XDEL', KEYS[i], entry[1])
  end
  most = math.max(most, #entries)
end
return most

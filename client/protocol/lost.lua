-- Tell which entries have left a job's stream. No content of an entry goes to the client: a record may have many megabytes.
-- KEYS[1] the stream
-- ARGV[1] number of entries after which the script stops, if they are still there: Redis copies each of them, 9 ms for 1 MB
-- ARGV[2...] ids of the entries
-- Returns the ids of the entries that have left the stream, as far as the script has come.
local lost, there = {}, 0
for i = 2, #ARGV do
  if redis.call('XREVRANGE', KEYS[1], ARGV[i], ARGV[i])[1] then
    there = there + 1
    if there == tonumber(ARGV[1]) then
      break
    end
  else
    lost[#lost + 1] = ARGV[i]
  end
end
return lost

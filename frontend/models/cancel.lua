-- Take back records without a waiting caller that no node has read yet. A node answers every record that it has read.
-- KEYS[1] the stream. ARGV[1] the consumer group. ARGV[2 ...] ids of entries.
-- Returns the number of records taken back.
local function numbers(id)
  local ms, number = string.match(id, '(%d+)-(%d+)')
  return tonumber(ms), tonumber(number)
end
local last = '0-0'
local groups = redis.pcall('XINFO', 'GROUPS', KEYS[1])
for _, group in ipairs(groups) do
  local facts = {}
  for i = 1, #group, 2 do
    facts[group[i]] = group[i + 1]
  end
  if facts['name'] == ARGV[1] then
    last = facts['last-delivered-id']
  end
end
local last_ms, last_number = numbers(last)
local taken = 0
for i = 2, #ARGV do
  local ms, number = numbers(ARGV[i])
  if ms > last_ms or (ms == last_ms and number > last_number) then
    taken = taken + redis.call('XDEL', KEYS[1], ARGV[i])
  end
end
return taken

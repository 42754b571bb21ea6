-- Begin the ids of an empty stream anew if they are ahead of Redis' clock, because an entry was added with an id of its own.
-- Deadlines count from ids, and a stream that has had the last possible id takes no entry any more.
-- KEYS[1] the stream
-- ARGV[1] the group, ARGV[2] ms by which ids may be ahead
-- Returns 1 if the ids begin anew, else 0.
if redis.call('XLEN', KEYS[1]) > 0 then
  return 0
end
local told, facts = redis.call('XINFO', 'STREAM', KEYS[1]), {}
for i = 1, #told, 2 do
  facts[told[i]] = told[i + 1]
end
local last_ms = tonumber(string.match(facts['last-generated-id'], '^%d+'))
if last_ms <= redis.call('TIME')[1] * 1000 + tonumber(ARGV[2]) then
  return 0
end
redis.call('DEL', KEYS[1])
redis.call('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
return 1

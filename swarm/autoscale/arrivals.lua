-- Return the number of records that were ever added to a stream, and the number of records in the stream.
-- The first number is -1 for a Redis before version 7, which does not count.
-- KEYS[1] stream of the job
-- The first and the last record, which XINFO returns too, may have megabytes, and stay here.
local stream = redis.pcall('XINFO', 'STREAM', KEYS[1])
if stream.err then
  return stream.err:find('no such key', 1, true) and {0, 0} or stream
end
local facts = {['entries-added'] = -1}
for at = 1, #stream, 2 do
  facts[stream[at]] = stream[at + 1]
end
return {facts['entries-added'], facts['length']}

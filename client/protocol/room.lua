-- Take back the records without room in a job's stream: the newest records. The transaction that ends with the script added them.
-- KEYS[1] the stream
-- KEYS[2] the limits hash. Its maxQueueLength is the room (0: no limit)
-- KEYS[3] the reason to admit no record now, as a text (absent: admission is open)
-- ARGV[1] number of records that the transaction added
-- ARGV[2] number of records that the client plans to add: the script only counts for them
-- Returns the number of records without room, and the reason as a text (nil: maxQueueLength).
-- Nodes write the limits. Without limits no node of the job has ever run, and the job may be a typing error: it has room for 10000
-- records, and for 64 MB where the client may ask for the bytes of the stream. The first record may be larger.
-- After an error of the limits or the text, no added record is left in the stream.
local added, planned = tonumber(ARGV[1]), tonumber(ARGV[2])
local why = redis.pcall('GET', KEYS[3])
local limit = redis.pcall('HGET', KEYS[2], 'maxQueueLength')
local fault = type(why) == 'table' and why or type(limit) == 'table' and limit

local surplus, most = 0, math.floor(tonumber(limit or 10000) or 0)
if fault then
  surplus = added
elseif why then
  surplus = added + planned
elseif most > 0 then
  local length = redis.call('XLEN', KEYS[1])
  surplus = math.max(0, math.min(added + planned, length + planned - most))
  if not limit then
    local bytes = redis.pcall('MEMORY', 'USAGE', KEYS[1], 'SAMPLES', 0)
    if length > added and type(bytes) == 'number' and bytes > 67108864 then
      surplus = added + planned
    end
    why = surplus > 0 and 'no node of the job ' .. KEYS[1] .. ' has ever run: 10000 records or 64 MB may wait for the first'
  end
end
if added > 0 and surplus > 0 then
  local newest = redis.pcall('XREVRANGE', KEYS[1], '+', '-', 'COUNT', surplus)
  fault = fault or newest.err and newest
  for _, entry in ipairs(newest) do
    redis.call('XDEL', KEYS[1], entry[1])
  end
end
return fault or {surplus, why}

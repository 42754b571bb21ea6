-- Take back the records without room in a job's stream: the newest records. The transaction that ends with the script added them.
-- KEYS[1] the stream
-- KEYS[2] the limits hash. Its maxQueueLength is the room (absent or 0: no limit)
-- KEYS[3] the reason to admit no record now, as a text (absent: admission is open)
-- ARGV[1] number of records that the transaction added
-- ARGV[2] number of records that the client plans to add: the script only counts for them
-- Returns the number of records without room, and the text of KEYS[3].
-- After an error of the limits or the text, no added record is left in the stream.
local added, planned = tonumber(ARGV[1]), tonumber(ARGV[2])
local why = redis.pcall('GET', KEYS[3])
local limit = redis.pcall('HGET', KEYS[2], 'maxQueueLength')
local fault = type(why) == 'table' and why or type(limit) == 'table' and limit

local surplus, most = 0, math.floor(tonumber(limit or 0) or 0)
if fault then
  surplus = added
elseif why then
  surplus = added + planned
elseif most > 0 then
  surplus = math.max(0, math.min(added + planned, redis.call('XLEN', KEYS[1]) + planned - most))
end
if added > 0 and surplus > 0 then
  local newest = redis.pcall('XREVRANGE', KEYS[1], '+', '-', 'COUNT', surplus)
  fault = fault or newest.err and newest
  for _, entry in ipairs(newest) do
    redis.call('XDEL', KEYS[1], entry[1])
  end
end
return fault or {surplus, why}

-- Add a point to the history of a job, unless the last point is too young: every process of every frontend offers its own.
-- KEYS[1] history of the job
-- ARGV[1] point
-- ARGV[2] least ms between two points
-- ARGV[3] number of points that are kept
-- ARGV[4] ms after the last point for which the history is kept
-- Returns 1 if the point was added, else 0.
local now = redis.call('TIME')
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if last and now[1] * 1000 + now[2] / 1000 - tonumber(last[1]:match('^%d+')) < tonumber(ARGV[2]) then
  return 0
end
redis.call('XADD', KEYS[1], 'MAXLEN', ARGV[3], '*', 'point', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1

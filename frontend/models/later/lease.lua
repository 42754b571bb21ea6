-- Lease finished calls whose results are due to be posted. Nobody else gets them before the lease ends.
-- KEYS[1] the callbacks
-- ARGV[1] duration of the lease in ms. ARGV[2] most calls
-- ARGV[3] most calls of a host. ARGV[4] ms until a call is due again that finds no place at its host
-- then hosts that have other numbers of places: host, places
-- Returns the end of the lease, and the key and the host of each call.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ends, again = string.format('%d', now + ARGV[1]), string.format('%d', now + ARGV[4])
local most = tonumber(ARGV[2])
local places = {}
for i = 5, #ARGV, 2 do
  places[ARGV[i]] = tonumber(ARGV[i + 1])
end
local leased = {}
-- More than are leased, so that the calls of one host do not stand before the calls of others.
for _, call in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 4 * most)) do
  local host = (redis.call('HGET', call, 'callback') or ''):match('^%a+://([^/?]*)') or ''
  host = host:lower()
  local left = places[host] or tonumber(ARGV[3])
  if left > 0 then
    places[host] = left - 1
    redis.call('ZADD', KEYS[1], ends, call)
    leased[#leased + 1] = call
    leased[#leased + 1] = host
    if #leased == 2 * most then
      break
    end
  else
    redis.call('ZADD', KEYS[1], again, call)
  end
end
return {ends, leased}

-- What `trace` needs of a result, at one instant.
-- KEYS[1] the hash of a result
-- Returns {field, value, ...} of receipt and error as far as they are there; the time that is left to the hash in ms (-1: no end;
-- -2: no hash); Redis' clock, as TIME tells it.
local found = {}
for _, field in ipairs({'receipt', 'error'}) do
  local value = redis.call('HGET', KEYS[1], field)
  if value then
    found[#found + 1] = field
    found[#found + 1] = value
  end
end
return {found, redis.call('PTTL', KEYS[1]), redis.call('TIME')}

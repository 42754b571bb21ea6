-- Read the data that `trace` needs about a result, all at one instant.
-- KEYS[1] hash of the result
-- Returns an array of three:
--   {field, value, ...}: the fields receipt and error, as far as the hash has the fields
--   time left to the hash in ms (-1: without end, -2: no hash)
--   clock of Redis, as the reply of TIME
local found = {}
for _, field in ipairs({'receipt', 'error'}) do
  local value = redis.call('HGET', KEYS[1], field)
  if value then
    found[#found + 1] = field
    found[#found + 1] = value
  end
end
return {found, redis.call('PTTL', KEYS[1]), redis.call('TIME')}

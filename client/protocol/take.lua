-- Read and delete results in one step, so that only one of two readers gets a result.
-- KEYS the result hashes
-- Returns the HGETALL reply for each key (empty: the key is gone, or is not a hash).
local found = {}
for i, key in ipairs(KEYS) do
  local fields = redis.pcall('HGETALL', key)
  if fields.err then
    fields = {}
  elseif #fields > 0 then
    redis.call('DEL', key)
  end
  found[i] = fields
end
return found

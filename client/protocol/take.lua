-- Read and delete results in one step, so that of two readers only one gets a result.
-- KEYS the result hashes; returns for each what HGETALL says (empty: it is gone, or no hash).
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

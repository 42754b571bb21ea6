-- Delete results that were read, unless a newer result has taken the place.
-- KEYS the result hashes
-- ARGV the receipt of each result, as it was read (empty: the result has none)
-- Returns 1 for each result that was deleted, else 0: of two readers, one gets the result.
local deleted = {}
for i, key in ipairs(KEYS) do
  local receipt = redis.pcall('HGET', key, 'receipt') or ''
  deleted[i] = receipt == ARGV[i] and redis.call('DEL', key) or 0
end
return deleted

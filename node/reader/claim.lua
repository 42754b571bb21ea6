-- Claim pending entries: the consumer's own entries, and entries of other consumers that were not renewed for a lease.
-- KEYS[1] the stream
-- ARGV[1] the group, ARGV[2] the claiming consumer, ARGV[3] the lease in ms, ARGV[4 ...] entry ids
-- Returns {id, fields, deliveries so far} of each claimed entry. An entry that is no longer in the stream is acknowledged.
local group, me, lease = ARGV[1], ARGV[2], tonumber(ARGV[3])
local taken = {}
for i = 4, #ARGV do
  local id = ARGV[i]
  local pending = redis.call('XPENDING', KEYS[1], group, id, id, 1)[1]
  if pending and (pending[2] == me or pending[3] >= lease) then
    local entry = redis.call('XCLAIM', KEYS[1], group, me, 0, id)[1]
    if entry then
      taken[#taken + 1] = {id, entry[2], pending[4]}
    else
      redis.call('XACK', KEYS[1], group, id)
    end
  end
end
return taken

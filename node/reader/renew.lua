-- Renew the leases of entries that a consumer works on, so that no other consumer takes the entries over.
-- KEYS[1] the stream
-- ARGV[1] the group, ARGV[2] the consumer, ARGV[3 ...] entry ids
-- Returns how many entries are the consumer's own. The rest have been finished or taken over, and stay as they are.
local renewed = 0
for i = 3, #ARGV do
  local id = ARGV[i]
  if #redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1, ARGV[2]) == 1 then
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, id, 'JUSTID')  -- counts as no delivery
    renewed = renewed + 1
  end
end
return renewed

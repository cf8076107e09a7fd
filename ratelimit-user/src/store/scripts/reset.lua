-- Forgets a record: the next question finds nothing used. Units that hosts hold by leases at that moment can be spent on top, once.
--
-- KEYS  1: the record   2: the mark that this reset was done, if it may be sent more than once
-- ARGV  1: for how many milliseconds the mark is kept
if KEYS[2] and not redis.call('SET', KEYS[2], '1', 'NX', 'PX', ARGV[1]) then return 0 end
return redis.call('DEL', KEYS[1])

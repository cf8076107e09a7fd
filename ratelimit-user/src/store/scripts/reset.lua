-- Forgets a record. Whoever asks next finds nothing used; what hosts hold until then comes on top, once.
--
-- KEYS  1: the record   2: rows of its hosts   3: their order   4: that this reset was done, if it may be told more than once
-- ARGV  1: for how many milliseconds that is known
if KEYS[4] and not redis.call('SET', KEYS[4], '1', 'NX', 'PX', ARGV[1]) then return 0 end
return redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])

-- Forgets a record. Whoever asks next finds nothing used; what hosts hold until then comes on top, once.
--
-- KEYS  1: the record   2: rows of its hosts   3: their order
return redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])

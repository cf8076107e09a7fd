-- Forgets the books of a limit. Whoever asks next finds a full bucket; what hosts hold until then comes on top, once.
--
-- KEYS  1: the ledger
return redis.call('DEL', KEYS[1])

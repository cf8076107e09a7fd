-- Blocks that hold on all hosts, and the hosts. cluster/gossip.rs says what for; everything here happens at once or not at all.
--
-- KEYS  1: state     hash: run identity version base floor
--       2: blocks    hash: prefix -> { version, until ms or 0, whether it was removed, reason, origin }
--       3: changes   sorted set: prefix by version
--       4: ends      sorted set: prefix by when it ran out, will run out, or was removed; without those that have no end
--       5: hosts     hash: host -> { incarnation, call, edit, facts, owner }
--       6: seen      sorted set: host by when it was last heard of
-- ARGV  1: host   2: incarnation   3: call   4: identity   5: since   6: whether it is listing all   7: whether it wants the hosts
--       8: facts   9: owner   10: when the call was made by this server's clock, in ms; 0 if the host cannot tell
--       then for each edit: sequence, add|remove, whether it only restores, prefix, lifetime ms or -1, reason, origin
-- Gives { now ms, identity, base, version, begins, upto, more, standing, incarnation, edit, refused, changes, hosts }
--       refused: sequence, why.   changes: prefix, version, fate, ms left or -1, reason, origin.   hosts: name, ms ago, facts.
local FIRST, WIDTH = 11, 7
local PORTION, SWEPT, DAY, AWAY, OLD = 1000, 400, 86400000, 10000, 10000
local HOLDS, REMOVED, RAN_OUT = 1, 0, 2
local MAX_LIVE, MAX_DEAD, MAX_HOSTS, MAX_LIFETIME = 100000, 100000, 10000, 315360000000

local state, blocks, changes, ends, hosts, seen = unpack(KEYS)
local host, incarnation, call = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local identity, since, lists_all, owner, made = ARGV[4], tonumber(ARGV[5]), ARGV[6] == '1', ARGV[9], tonumber(ARGV[10])

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Another run id is another process: restarted, or promoted, and perhaps without the last writes. What belongs together and is not
-- there together was evicted or deleted: then nothing that is left means anything.
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local known = redis.call('HMGET', state, 'run', 'identity', 'version', 'base', 'floor')
local is_whole = known[1] and redis.call('HLEN', blocks) == redis.call('ZCARD', changes)
local version, base, floor = tonumber(known[3] or 0), tonumber(known[4] or 0), tonumber(known[5] or 0)
local own = known[2]
if not is_whole then
  redis.call('DEL', state, blocks, changes, ends)
  version, floor = 0, 0
end
if not is_whole or known[1] ~= run then
  own, base = string.format('%s-%s%06d', string.sub(run, 1, 12), time[1], time[2]), version
  redis.call('HSET', state, 'run', run, 'identity', own, 'version', version, 'base', base, 'floor', floor)
end

-- Somebody else may have written here: what cannot be read is not there.
local function opened(stored)
  local fine, record = pcall(cmsgpack.unpack, stored)
  return fine and type(record) == 'table' and type(record[1]) == 'number' and record or nil
end

-- Who is this, and is it news?
local lost = redis.call('ZRANGEBYSCORE', seen, '-inf', now - DAY, 'LIMIT', 0, 100)
if #lost > 0 then
  redis.call('HDEL', hosts, unpack(lost))
  redis.call('ZREM', seen, unpack(lost))
end
local standing, edit, newest = 'current', 0, incarnation
local member = redis.call('HGET', hosts, host)
if member then
  local last_call, _, owned
  newest, last_call, edit, _, owned = unpack(cmsgpack.unpack(member))
  local heard = tonumber(redis.call('ZSCORE', seen, host) or 0)
  if heard > now then
    -- The clock has gone back. Whoever is there is heard of again soon, and nobody else has its name for ever.
    heard = now
    redis.call('ZADD', seen, now, host)
  end
  if owned and owned ~= owner and now - heard < AWAY then
    -- Two machines with one name: it belongs to the one that had it first, for as long as that is heard of.
    standing = 'taken'
  elseif owned and owned ~= owner then
    newest, edit = incarnation, 0
  elseif incarnation > newest then
    newest, edit = incarnation, 0
  elseif incarnation < newest then
    standing = 'superseded'
  elseif call <= last_call then
    standing = 'late'
  end
elseif redis.call('HLEN', hosts) >= MAX_HOSTS then
  standing = 'crowded'
end

-- How long the call was on its way. What a host knows of the clock of another server, or of this one before it restarted, says nothing. A call that
-- is older than OLD was left over, or one of the clocks was set: the host says its edits again, and knows by this answer what time it is.
local way = made > 0 and identity == own and math.max(now - made, 0) or 0

local function dead()
  return redis.call('ZCOUNT', ends, '-inf', now)
end

local function carry_out(at)
  local removes, restores, prefix = ARGV[at + 1] == 'remove', ARGV[at + 2] == '1', ARGV[at + 3]
  local lifetime, reason, origin = tonumber(ARGV[at + 4]), ARGV[at + 5], ARGV[at + 6]
  if #prefix > 64 or #reason > 64 or #origin > 64 then
    return 'the prefix, the reason or the name of the host has more than 64 bytes'
  end
  local record = opened(redis.call('HGET', blocks, prefix))
  -- What somebody has said since is better than what somebody remembers.
  if restores and record and record[1] > base then
    return nil
  end
  local is_live = record and not record[3] and (record[2] == 0 or record[2] > now)
  if not removes and not is_live and redis.call('HLEN', blocks) - dead() >= MAX_LIVE then
    return string.format('there are %d blocks for all hosts already, which is the most there can be; remove some', MAX_LIVE)
  end
  version = redis.call('HINCRBY', state, 'version', 1)
  local till = 0
  if removes then
    till = now
  elseif lifetime >= 0 then
    -- Lifetimes are what was left when the call was made. One that has run out on the way still replaces what was there.
    till = now + math.max(math.min(lifetime, MAX_LIFETIME) - way, 1)
  end
  redis.call('HSET', blocks, prefix, cmsgpack.pack({ version, till, removes, reason, origin }))
  redis.call('ZADD', changes, version, prefix)
  if till == 0 then
    redis.call('ZREM', ends, prefix)
  else
    redis.call('ZADD', ends, till, prefix)
  end
end

local refused = {}
if standing == 'current' then
  for at = FIRST, way > OLD and 0 or #ARGV, WIDTH do
    local sequence = tonumber(ARGV[at])
    if sequence > edit then
      edit = sequence
      local why = carry_out(at)
      if why then
        refused[#refused + 1] = sequence
        refused[#refused + 1] = why
      end
    end
  end
  redis.call('HSET', hosts, host, cmsgpack.pack({ incarnation, call, edit, ARGV[8], owner }))
  redis.call('ZADD', seen, now, host)

  -- Whoever has heard of nothing since before what is forgotten here has to hear of everything.
  local forgotten = redis.call('ZRANGEBYSCORE', ends, '-inf', now - DAY, 'LIMIT', 0, SWEPT)
  if #forgotten == 0 and dead() > MAX_DEAD then
    forgotten = redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, SWEPT)
  end
  if #forgotten > 0 then
    for _, score in ipairs(redis.call('ZMSCORE', changes, unpack(forgotten))) do
      floor = math.max(floor, score and tonumber(score) or 0)
    end
    redis.call('HSET', state, 'floor', floor)
    redis.call('HDEL', blocks, unpack(forgotten))
    redis.call('ZREM', changes, unpack(forgotten))
    redis.call('ZREM', ends, unpack(forgotten))
  end
end

local begins = identity ~= own or since > version or (since < floor and not lists_all)
if begins then
  since = 0
end
local prefixes = redis.call('ZRANGEBYSCORE', changes, string.format('(%.0f', since), '+inf', 'LIMIT', 0, PORTION)
local told, upto = {}, version
if #prefixes > 0 then
  local records = redis.call('HMGET', blocks, unpack(prefixes))
  for at = 1, #prefixes do
    local record = opened(records[at])
    if record then
      local number, till, removed, reason, origin = unpack(record)
      local place, fate = #told, HOLDS
      if removed then
        fate = REMOVED
      elseif till ~= 0 and till <= now then
        fate = RAN_OUT
      end
      told[place + 1], told[place + 2], told[place + 3] = prefixes[at], number, fate
      told[place + 4] = till == 0 and -1 or math.max(till - now, 0)
      told[place + 5], told[place + 6] = reason, origin
    end
  end
  upto = tonumber(redis.call('ZSCORE', changes, prefixes[#prefixes]))
end
local more = #prefixes == PORTION and upto < version
if not more then
  upto = version
end

local all = {}
if ARGV[7] == '1' then
  local heard = redis.call('ZRANGE', seen, 0, -1, 'WITHSCORES')
  for at = 1, #heard, 2 do
    local entry = redis.call('HGET', hosts, heard[at])
    if entry then
      local place = #all
      all[place + 1], all[place + 2] = heard[at], math.max(now - tonumber(heard[at + 1]), 0)
      all[place + 3] = cmsgpack.unpack(entry)[4]
    end
  end
end
return { now, own, base, version, begins and 1 or 0, upto, more and 1 or 0, standing, newest, edit, refused, told, all }

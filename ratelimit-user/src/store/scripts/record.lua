-- The record of one key: states of its limits, the units that hosts hold by leases, and the units that hosts want. tests/src/record.rs and meter
-- compute the same numbers; read those first.
--
-- KEYS  the records, then, where longest is above 0, the key that keeps since when this server has known everything. It may be left out: while a
--       slot of a Redis Cluster moves, that key and a record may be on two servers.
-- ARGV  1: host   2: recent, like all times in us   3: longest, the life of a lease and its margin; 0 if a store that forgets begins anew
--       4: the number of records, then one for each record, which has doubles.
--       Of packets: sequence used held wanted life amount period burst
--       Of requests: sequence used held wanted life spend reserved patience refund age peek, and for each limit kind a b c queue d e:
--         1 bucket amount period burst    2 fixed limit period -    3 sliding limit part -    4 weighted limit period -
--         5 log limit period -            6 calendar limit start end
--         7 soft, a bucket with a margin: d and e are amount and burst of the limit itself
--       Of all other kinds d is the margin, and e the units that are held back at the moment.
-- Gives for each record of requests: spent wait granted free nearest more violated above holds heard. A wait of -1 is for ever; the nearest limit is
-- counted from 0, and violated has a bit for each limit.
-- Gives for each record of packets, where longest is above 0: units, lifetime, whether other hosts have the same limit (0 they do, 1 one says
-- less, 2 one says more), and how many hosts hold something of it or want to.
--
-- All numbers are whole and below 2^53. A call reads and writes one row, whatever the number of hosts: the record has the sums of all rows, and the
-- order says which row has to be looked at next. A row is: sequence, out (units that the host holds), end, wanted, granted. A row is due when what it
-- wants no longer counts, and again when its lease ends. The rows of a few hosts are in the record itself, which is quicker and smaller: name, sequence,
-- out, end, wanted, granted, due. With one host more all rows move out of the record, and stay out until none is left.
--
-- A record is one key, so that no server has a part of it alone. The key is a string. With rows that have moved out, or with a log, it is a sorted set
-- whose members are, by score:
--   LOGS and above     blocks of logs: 'l', the number of the log, the number of the block, and runs
--   below 0            rows: 'h', the row and the host, at a number that is made of the host's name
--   0 and above        the order: 'd' and the host, at the moment at which its row is due
--   infinity           'r' and the record
--
-- The time of a record never goes back. If the server's clock does, by more than STANDS, the record goes on from its latest moment at the speed of the
-- clock. By less, its time stands still until the clock is there again: small steps back and forth must not add up.
local LIMIT = 7
local ASK, ASK_BYTES = '<ddddddddddd', 88
local ROW, ROW_BYTES = '<ddddd', 40
local FIELDS, FEW = 7, 8
local LOGS = -9007199254740992
local STANDS = 100000
-- The most due rows that one call looks at. The units of due rows beyond count as held until the next call.
local DUE = 100
local MOST = 9007199254740991
local COUNT = 4294967295
local PARTS, NEAR = 61, 4
-- For so long the smaller limit that a host has told counts for all hosts.
local TOLD = 2000000

local host = ARGV[1]
local recent, longest, count = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]

-- Whether what this server may have forgotten counts as spent.
local is_strict = longest > 0

local floor, min, max = math.floor, math.min, math.max

local function ceiling(a, b)
  return floor((a + b - 1) / b)
end

-- A bucket has amount a, period b, burst c, and a state { moment, debt at that moment }.
local function debt(l, s, now)
  local passed = now - s[1]
  if passed <= 0 then return s[2] end
  -- After ceiling(MOST, l.a) us nothing is owed, however large the debt was.
  local rest = s[2] - min(passed, ceiling(MOST, l.a)) * l.a
  return rest > 0 and rest or 0
end

local function bucket_left(l, s, now)
  return floor(max(l.c * l.b - debt(l, s, now), 0) / l.b)
end

local function bucket_charge(l, s, now, n)
  s[2] = min(debt(l, s, now) + n * l.b, MOST)
  s[1] = max(s[1], now)
end

local function by_end(a, b) return a[1] < b[1] end

-- A record with nothing in it: states, out, wanted, rows, next, latest, rows that are in the record, the latest moment that the record has seen, by how
-- much that was ahead of the server's clock, of packets born, the server that wrote the record, limit in force, and of requests what hosts have told of
-- its limits. Next is no later than any row is due, and latest no earlier than any lease ends.
local STATES, OUT, WANTED, ROWS, NEXT, LATEST, HERE, SEEN, AHEAD, BORN, OF, IN_FORCE = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
local LIMITS = BORN
local function empty() return { {}, 0, 0, 0, 0, 0, {}, 0, 0 } end

-- Returns what time it is for a record, and whether the server's clock has gone back, so that the record must be written for its time to go on.
local function time_of(r)
  local behind = r[SEEN] - (clock + r[AHEAD])
  if behind <= 0 then return clock + r[AHEAD], false end
  if behind > STANDS then r[AHEAD] = r[AHEAD] + behind end
  return r[SEEN], behind > STANDS
end

local function is_elsewhere(r) return r[ROWS] * FIELDS > #r[HERE] end

-- Looks at due rows that are in the record, as lapse does at rows outside the record.
local function lapse_here(r, now)
  local ended, kept, next, has_lapsed = {}, {}, nil, false
  local here = r[HERE]
  for h = 1, #here, FIELDS do
    if here[h + 6] < now then
      has_lapsed = true
      r[WANTED] = r[WANTED] - here[h + 4]
      here[h + 4], here[h + 6] = 0, here[h + 3]
    end
    if here[h + 6] < now then
      r[OUT] = r[OUT] - here[h + 2]
      ended[#ended + 1] = { here[h + 3], here[h + 2] }
    else
      next = min(next or here[h + 6], here[h + 6])
      for field = 0, FIELDS - 1 do kept[#kept + 1] = here[h + field] end
    end
  end
  r[HERE], r[ROWS], r[NEXT] = kept, #kept / FIELDS, next or 0
  if not next then r[LATEST] = 0 end
  table.sort(ended, by_end)
  return ended, has_lapsed
end

local function is_set(key) return redis.call('TYPE', key).ok == 'zset' end

-- Makes a sorted set of a key that has none.
local function make_set(key)
  if not is_set(key) then redis.call('DEL', key) end
end

local function read(key)
  local stored
  if is_set(key) then
    stored = string.sub(redis.call('ZRANGE', key, -1, -1)[1], 2)
  else
    stored = redis.call('GET', key)
  end
  return stored and cmsgpack.unpack(stored)
end

local function score_of(name) return -1 - tonumber(string.sub(redis.sha1hex(name), 1, 12), 16) end

-- Returns the member of a set that has the row of a host, if there is one, and its score.
local function member_of(key, name)
  local score = score_of(name)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', key, score, score)) do
    if string.sub(member, ROW_BYTES + 2) == name then return member, score end
  end
  return nil, score
end

-- Writes the row of a host into a set, with when it is due. The row was that member before, and has that score.
local function put_row(key, name, member, score, due, sequence, out, ends, wanted, granted)
  if member then redis.call('ZREM', key, member) end
  redis.call('ZADD', key, score, 'h' .. struct.pack(ROW, sequence, out, ends, wanted, granted) .. name, due, 'd' .. name)
end

-- Looks at due rows: wishes that no longer count, and leases that have ended, are taken off. Returns these leases, as they ended, and whether a row was due.
local function lapse(r, key, now)
  if not is_elsewhere(r) then return lapse_here(r, now) end
  local ended = {}
  local due = redis.call('ZRANGEBYSCORE', key, 0, string.format('(%.0f', now), 'LIMIT', 0, DUE)
  for n = 1, #due do
    local name = string.sub(due[n], 2)
    local member, score = member_of(key, name)
    local sequence, out, ends, wanted, granted = struct.unpack(ROW, string.sub(member, 2))
    r[WANTED] = r[WANTED] - wanted
    if ends < now then
      r[OUT], r[ROWS] = r[OUT] - out, r[ROWS] - 1
      ended[#ended + 1] = { ends, out }
      redis.call('ZREM', key, member, due[n])
    else
      put_row(key, name, member, score, ends, sequence, out, ends, 0, granted)
    end
  end
  local first = redis.call('ZRANGEBYSCORE', key, 0, '(+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  r[NEXT] = tonumber(first[2] or 0)
  if not first[1] then r[OUT], r[WANTED], r[ROWS], r[LATEST] = 0, 0, 0, 0 end
  table.sort(ended, by_end)
  return ended, #due > 0
end

-- Returns the row of this host: sequence, out, end, wanted, granted; whether there is one; and, of a set, its member and score.
local function own_row(r, key)
  local here = r[HERE]
  for h = 1, #here, FIELDS do
    if here[h] == host then return here[h + 1], here[h + 2], here[h + 3], here[h + 4], here[h + 5], true end
  end
  if not is_elsewhere(r) then return 0, 0, 0, 0, 0, false end
  local member, score = member_of(key, host)
  if not member then return 0, 0, 0, 0, 0, false, nil, score end
  local sequence, out, ends, wanted, granted = struct.unpack(ROW, string.sub(member, 2))
  return sequence, out, ends, wanted, granted, true, member, score
end

-- Moves the rows out of the record.
local function move_out(r, key)
  local here = r[HERE]
  make_set(key)
  for h = 1, #here, FIELDS do
    put_row(key, here[h], nil, score_of(here[h]), here[h + 6], here[h + 1], here[h + 2], here[h + 3], here[h + 4], here[h + 5])
  end
  r[HERE] = {}
end

local function write_row(r, key, member, score, sequence, out, ends, wanted, granted, now)
  -- A row that wants nothing is due when its lease ends.
  local due = wanted > 0 and min(now + recent, ends) or ends
  if r[ROWS] == 0 or r[NEXT] > due then r[NEXT] = due end
  local here = r[HERE]
  if not is_elsewhere(r) then
    local place = #here + 1
    for h = 1, #here, FIELDS do
      if here[h] == host then place = h end
    end
    here[place], here[place + 1], here[place + 2], here[place + 3] = host, sequence, out, ends
    here[place + 4], here[place + 5], here[place + 6] = wanted, granted, due
    r[ROWS] = #here / FIELDS
    if r[ROWS] > FEW then move_out(r, key) end
    return
  end
  put_row(key, host, member, score, due, sequence, out, ends, wanted, granted)
  if not member then r[ROWS] = r[ROWS] + 1 end
end

-- Writes a record, and keeps it for so many us from now on.
local function write(r, key, lasts, now, has_logs)
  local ms = floor(lasts / 1000) + 1000
  r[SEEN] = now
  local packed = cmsgpack.pack(r)
  if not has_logs and not is_elsewhere(r) then
    redis.call('SET', key, packed, 'PX', ms)
    return
  end
  redis.call('ZREMRANGEBYSCORE', key, '+inf', '+inf')
  redis.call('ZADD', key, '+inf', 'r' .. packed)
  redis.call('PEXPIRE', key, ms)
end

-- Returns this host's part of what is free: by what this host wants against what all want, or what is left when all others have what they want.
local function share(free, wanted, others)
  local part = floor(free * (wanted / (wanted + others)))
  return min(wanted, max(part, free - others, 1), free)
end

-- exchange(key, packed) answers one record.
local answers, exchange = {}, nil

if is_strict then
  -- The id changes when the server is started or promoted. Then the last writes may be missing.
  local replication = redis.call('INFO', 'replication')
  local id = string.match(replication, 'master_replid:(%x+)')
  local me = string.sub(id, 1, 12)

  -- Whether a record of another server has come here because its slot moved, so that it is complete: the other wrote it a moment ago, when this server
  -- had long been there, and was not its master.
  local function has_moved(r)
    local written = r[SEEN] - r[AHEAD]
    local up = tonumber(string.match(redis.call('INFO', 'server'), 'uptime_in_seconds:(%d+)')) * 1000000
    return math.abs(clock - written) <= longest and clock - up + longest < written and not string.find(replication, r[OF], 1, true)
  end

  -- Returns since when this server has known everything, and sets the longest life of a lease to that of any host. Without the key, that is from now on.
  local since_key = KEYS[count + 1]
  local of, began, lasts
  if since_key then
    of, began, lasts = string.match(redis.call('GET', since_key) or '', '^(%x+) (%d+) (%d+)$')
    began, lasts = tonumber(began), tonumber(lasts)
  end
  local function since(r)
    if not since_key then return clock end
    if of ~= id or lasts < longest or began > clock then
      -- The key has moved with the slot if a record has that is as old.
      local stays = of == id or (r and r[BORN] == began)
      began, lasts = stays and min(began, clock) or clock, max(lasts or 0, longest)
      of = id
      redis.call('SET', since_key, string.format('%s %.0f %.0f', of, began, lasts))
    end
    longest = lasts
    return began
  end

  -- Records which limit a host has. The smallest limit of any host is in force, until no host that is heard of has told it for as long as a lease can
  -- last. Returns the limit in force, and whether other hosts have the same limit: 0, 1 or 2.
  local function compare(r, said, is_alone, now)
    local limit = r[IN_FORCE] or { said.a, said.b, said.c, 0, 0, 0 }
    local a, b, c = limit[1], limit[2], limit[3]
    if said.a * b <= a * said.b or is_alone or limit[4] + longest < now then
      limit[1], limit[2], limit[4] = said.a, said.b, now
    end
    if said.c <= c or is_alone or limit[5] + longest < now then
      limit[3], limit[5] = said.c, now
    end
    local differs = 0
    if limit[1] ~= said.a or limit[2] ~= said.b or limit[3] ~= said.c then
      limit[6], differs = now, 1
    elseif limit[6] > 0 and not is_alone and limit[6] + longest >= now then
      differs = 2
    end
    if limit[1] ~= a or limit[2] ~= b or limit[3] ~= c then
      -- Whole units that were left stay, as far as they fit.
      local state = r[STATES][1]
      local left = floor((c * b - state[2]) / b)
      state[2] = min((limit[3] - min(left, limit[3])) * limit[2], MOST)
    end
    r[IN_FORCE] = limit
    return { a = limit[1], b = limit[2], c = limit[3] }, differs
  end

  exchange = function(key, packed)
    local sequence, uses, holds, wanted, life, amount, period, burst = struct.unpack('<dddddddd', packed)
    local said, nth = { a = amount, b = period, c = burst }, #answers
    local r = read(key)
    local is_known = r and (r[OF] == me or has_moved(r))
    local born = since(is_known and r)
    if not r and uses == 0 and holds == 0 and wanted == 0 then
      answers[nth + 1], answers[nth + 2], answers[nth + 3], answers[nth + 4] = 0, life, 0, 0
      return
    end
    if not is_known then
      -- Nothing was left when this server began to know everything. The units that have come since then are left.
      if r then redis.call('DEL', key) end
      r = empty()
      r[STATES][1], r[BORN] = { born, said.c * said.b }, born
    end
    r[OF] = me
    local now = time_of(r)
    local state = r[STATES][1]
    -- For as long as leases can last that this server knows nothing of, it gives out nothing.
    local is_cold = now < r[BORN] + longest
    local ended = (r[ROWS] > 0 and r[NEXT] < now) and lapse(r, key, now) or {}
    local last, had, ends, counted, given, is_there, member, score = own_row(r, key)
    local limit, differs = compare(r, said, r[ROWS] == (is_there and 1 or 0), now)
    -- Leases that nobody has reported on in time are charged, at the moments at which they ended.
    for n = 1, #ended do bucket_charge(limit, state, ended[n][1], ended[n][2]) end
    bucket_charge(limit, state, now, 0)

    local units, lasts, margin = 0, life, floor(life / 8)
    if sequence <= last then
      -- The entry was sent before: it gets the same answer, or nothing if a later entry was heard. A host without a row gets no row by it.
      units = is_there and sequence == last and given or 0
      lasts = max(max(ends - margin, 0) - now, 0)
    else
      bucket_charge(limit, state, now, min(uses, had))
      r[OUT], r[WANTED] = r[OUT] - had + holds, r[WANTED] - counted + wanted
      local free = bucket_left(limit, state, now) - r[OUT]
      if wanted > 0 and free > 0 and not is_cold then units = share(free, wanted, r[WANTED] - wanted) end
      r[OUT], ends = r[OUT] + units, now + life + margin
      write_row(r, key, member, score, sequence, holds + units, ends, wanted, units, now)
    end
    -- After this time the bucket is full and no host has a lease: a new record is the same.
    write(r, key, floor(limit.c * limit.b / limit.a) + 2 * longest, now, false)
    answers[nth + 1], answers[nth + 2], answers[nth + 3], answers[nth + 4] = units, lasts, differs, r[ROWS]
  end
else
  -- Each kind has left(limit, state, now), charge(limit, state, now, units), refund(limit, state, now, age, units), which tells whether anything came
  -- back, wait(limit, state, now, units), fresh(), which makes a new state, and lasts(limit): how long a state means anything. Kinds are made when they
  -- are first needed: a script keeps nothing from call to call, and most calls have one kind.
  local makers = {}

  makers[1] = function()
    return {
      fresh = function() return { 0, 0 } end,
      capacity = function(l) return l.c end,
      left = bucket_left,
      charge = bucket_charge,
      refund = function(l, s, now, age, n)
        local owed = debt(l, s, now)
        local back = min(max(n * l.b - min(age, ceiling(MOST, l.a)) * l.a, 0), owed)
        if back > 0 then
          s[2] = owed - back
          s[1] = max(s[1], now)
        end
        return back > 0
      end,
      wait = function(l, s, now, n)
        local excess = debt(l, s, now) + n * l.b - l.c * l.b
        return excess <= 0 and 0 or max(s[1] - now, 0) + ceiling(excess, l.a)
      end,
      turn = function(l, s, now) return ceiling(debt(l, s, now), l.a) end,
      lasts = function(l) return ceiling(l.c * l.b, l.a) end,
    }
  end

  makers[2] = function()
    -- Returns when the window around a moment begins, in seconds, and when it ends, in us.
    local function span(l, now)
      if l.kind == 6 then
        -- The host has said when its day or month begins and ends. The windows before and after count as equally long.
        local length = l.c - l.b
        local start = l.b + floor((now - l.b) / length) * length
        return floor(start / 1000000), start + length
      end
      local start = now - now % l.b
      return floor(start / 1000000), start + l.b
    end
    local function window(l, s, now)
      local start, finish = span(l, now)
      if s[1] > start then
        local _, later = span(l, s[1] * 1000000)
        return s[1], later, s[2]
      end
      return start, finish, s[1] == start and s[2] or 0
    end
    return {
      fresh = function() return { 0, 0 } end,
      capacity = function(l) return l.a end,
      left = function(l, s, now)
        local _, _, count = window(l, s, now)
        return max(l.a - count, 0)
      end,
      charge = function(l, s, now, n)
        local start, _, count = window(l, s, now)
        s[1], s[2] = start, min(count + n, COUNT)
      end,
      refund = function(l, s, now, age, n)
        local start, _, count = window(l, s, now)
        if (age > 0 and start * 1000000 + age > now) or n > count then return false end
        s[1], s[2] = start, count - n
        return true
      end,
      wait = function(l, s, now, n)
        local _, finish, count = window(l, s, now)
        return count + n > l.a and max(finish - now, 0) or 0
      end,
      lasts = function(l) return l.kind == 6 and 2 * (l.c - l.b) or l.b end,
    }
  end
  makers[6] = makers[2]

  makers[3] = function()
    -- A state is { latest part, counter of part % 61 = 0, of 1, ... }.
    local function part(l, s, now)
      return max(floor(now / l.b), s[1])
    end
    local function used(s, at)
      local sum = 0
      for p = max(at + 1 - PARTS, 0), min(s[1], at) do
        sum = sum + s[p % PARTS + 2]
      end
      return sum
    end
    return {
      fresh = function()
        local s = {}
        for i = 1, PARTS + 1 do s[i] = 0 end
        return s
      end,
      capacity = function(l) return l.a end,
      left = function(l, s, now) return max(l.a - used(s, part(l, s, now)), 0) end,
      charge = function(l, s, now, n)
        local at = part(l, s, now)
        for p = max(s[1] + 1, at + 1 - PARTS), at do
          s[p % PARTS + 2] = 0
        end
        s[1] = at
        s[at % PARTS + 2] = min(s[at % PARTS + 2] + n, COUNT)
      end,
      refund = function(l, s, now, age, n)
        local at, rest, charged = part(l, s, now), n, 0
        local first, last = max(at + 1 - PARTS, 0), min(s[1], at)
        if age > 0 then last = min(last, floor(max(now - age, 0) / l.b)) end
        for p = first, last do charged = charged + s[p % PARTS + 2] end
        if n > charged then return false end
        for p = last, first, -1 do
          local back = min(rest, s[p % PARTS + 2])
          s[p % PARTS + 2] = s[p % PARTS + 2] - back
          rest = rest - back
        end
        return true
      end,
      wait = function(l, s, now, n)
        local at = part(l, s, now)
        local sum = used(s, at)
        if sum + n <= l.a then return 0 end
        for p = max(at + 1 - PARTS, 0), min(s[1], at) do
          sum = sum - s[p % PARTS + 2]
          if sum + n <= l.a then return max((p + PARTS) * l.b - now, 0) end
        end
        return -1
      end,
      lasts = function(l) return l.b * PARTS end,
    }
  end

  makers[4] = function()
    -- A state is { window, count of the window before, count }.
    local function pair(l, s, now)
      local at = floor(now / l.b)
      if s[1] > at then return s[1], 0, s[2], s[3] end
      if s[1] == at then return at, now % l.b, s[2], s[3] end
      return at, now % l.b, s[1] + 1 == at and s[3] or 0, 0
    end
    -- Returns a * b / c rounded down, and the rest, for products beyond 2^53: in two steps, as whole numbers.
    local function scaled(a, b, c)
      local high = floor(b / 65536)
      local low = b - high * 65536
      local whole, rest = floor(a * high / c), (a * high) % c
      -- a is below 2^32, and b and c below 2^37, which a day is: nothing here reaches 2^53.
      return whole * 65536 + floor((rest * 65536 + a * low) / c), (rest * 65536 + a * low) % c
    end
    local function weight(l, passed, before)
      local whole, rest = scaled(before, l.b - passed, l.b)
      return rest > 0 and whole + 1 or whole
    end
    local function fits_from(l, before, room)
      if before <= room then return 0 end
      -- scaled has two results: only the first is used.
      local still = scaled(room, l.b, before)
      return l.b - still
    end
    return {
      fresh = function() return { 0, 0, 0 } end,
      capacity = function(l) return l.a end,
      left = function(l, s, now)
        local _, passed, before, count = pair(l, s, now)
        return max(l.a - count - weight(l, passed, before), 0)
      end,
      charge = function(l, s, now, n)
        local at, _, before, count = pair(l, s, now)
        s[1], s[2], s[3] = at, before, min(count + n, COUNT)
      end,
      refund = function(l, s, now, age, n)
        local at, _, before, count = pair(l, s, now)
        local ago = age > 0 and max(at - floor(max(now - age, 0) / l.b), 0) or 0
        local old, new = ago < 2 and before or 0, ago < 1 and count or 0
        if n > old + new then return false end
        local back = min(n, new)
        s[1], s[2], s[3] = at, before - (n - back), count - back
        return true
      end,
      wait = function(l, s, now, n)
        local at, passed, before, count = pair(l, s, now)
        if count + weight(l, passed, before) + n <= l.a then return 0 end
        local here = l.a - n - count
        if here >= 0 then return max(at * l.b + fits_from(l, before, here) - now, 0) end
        return max((at + 1) * l.b + fits_from(l, count, max(l.a - n, 0)) - now, 0)
      end,
      lasts = function(l) return 2 * l.b end,
    }
  end

  makers[5] = function()
    -- A state is { units, moment of the newest, runs, room, until, base }. Room is the largest limit that has counted units which may still count, and
    -- until is how long they may: a limit that goes from 100 to 10 and back forgets nothing. A run is a moment and its number of units. Runs are in
    -- blocks, in order, and only those blocks are read that matter; base is the number of runs before the first. Nothing is written before the record is.
    local BLOCK = 16
    local function score(s, block) return LOGS + s.nth * COUNT + block end
    local function head(s, block) return string.format('l%.0f:%.0f:', s.nth, block) end
    -- Returns the block that has a run, its number, and the place of the run in it.
    local function block_of(s, i)
      local at = s.base + i - 1
      local number = floor(at / BLOCK)
      if not s.blocks[number] then
        local block = {}
        local stored = not s.is_new and redis.call('ZRANGEBYSCORE', s.key, score(s, number), score(s, number))[1]
        if stored then
          local runs = { struct.unpack('<' .. string.rep('d', floor((#stored - #head(s, number)) / 8)), stored, #head(s, number) + 1) }
          for n = 1, #runs - 1, 2 do block[#block + 1] = { runs[n], runs[n + 1] } end
        end
        s.blocks[number] = block
      end
      return s.blocks[number], number, at % BLOCK + 1
    end
    local function run(s, i)
      if i > s.runs then return s.tail[i - s.runs] end
      local block, _, place = block_of(s, i)
      return block[place] or { 0, 0 }
    end
    local function units(s, i)
      return run(s, i)[2] - (i == s.first and s.skip or 0)
    end
    -- Returns how many units have expired, and the first run that has not.
    local function expired(l, s, now)
      local gone, i = 0, s.first
      -- A run without units (all were given back) is skipped whatever its moment: after a clock that went back, runs behind it may be older.
      while i <= s.runs + #s.tail and (units(s, i) == 0 or run(s, i)[1] + l.b < now) do
        gone, i = gone + units(s, i), i + 1
      end
      if i > s.runs + #s.tail then gone = s.units end
      return gone, i
    end
    local function begin(s, i)
      if i > s.first then s.first, s.skip = i, 0 end
    end
    return {
      fresh = function() return { 0, 0, 0, 0, 0, 0 } end,
      -- Makes what a call works on of a state.
      open = function(l, s, key, nth, is_new, now)
        local room, lasts = l.a, 0
        if s[4] > l.a and s[5] >= now then room, lasts = s[4], s[5] end
        return { room = room, lasts = lasts, units = s[1], newest = s[2], runs = s[3], base = s[6], key = key, nth = nth, is_new = is_new, first = 1, skip = 0, blocks = {}, tail = {}, changed = {} }
      end,
      copy = function(s)
        local tail = {}
        for n = 1, #s.tail do tail[n] = { s.tail[n][1], s.tail[n][2] } end
        return { room = s.room, units = s.units, newest = s.newest, runs = s.runs, base = s.base, key = s.key, nth = s.nth, first = s.first, skip = s.skip, blocks = s.blocks, tail = tail, changed = {} }
      end,
      close = function(l, s, lasts, now)
        if s.is_new then redis.call('ZREMRANGEBYSCORE', s.key, score(s, 0), score(s, COUNT - 1)) end
        local changed = {}
        for i in pairs(s.changed) do
          local _, number = block_of(s, i)
          changed[number] = true
        end
        if s.skip > 0 then
          local one = run(s, s.first)
          one[2] = one[2] - s.skip
          if s.first <= s.runs then
            local _, number = block_of(s, s.first)
            changed[number] = true
          end
        end
        for n = max(s.first - s.runs, 1), #s.tail do
          local block, number, place = block_of(s, s.runs + n)
          for gap = #block + 1, place - 1 do block[gap] = { 0, 0 } end
          block[place], changed[number] = s.tail[n], true
        end
        local before, base = floor(s.base / BLOCK), s.base + s.first - 1
        local from = floor(base / BLOCK)
        if from > before then redis.call('ZREMRANGEBYSCORE', s.key, score(s, before), score(s, from - 1)) end
        for number in pairs(changed) do
          if number >= from then
            local packed = { head(s, number) }
            for _, one in ipairs(s.blocks[number]) do packed[#packed + 1] = struct.pack('<dd', one[1], one[2]) end
            redis.call('ZREMRANGEBYSCORE', s.key, score(s, number), score(s, number))
            redis.call('ZADD', s.key, score(s, number), table.concat(packed))
          end
        end
        if s.room == l.a then s.lasts = now + lasts end
        return { s.units, s.newest, s.runs + #s.tail - s.first + 1, s.room, s.lasts, base }
      end,
      capacity = function(l) return l.a end,
      left = function(l, s, now) return max(l.a - (s.units - expired(l, s, now)), 0) end,
      charge = function(l, s, now, n)
        local gone, i = expired(l, s, now)
        begin(s, i)
        s.units = s.units - gone
        local moment = max(now, s.units > 0 and s.newest or 0)
        n = min(n, s.room)
        -- If there is no room for all units, the oldest make way.
        local over = s.units + n - s.room
        while over > 0 do
          local here = units(s, s.first)
          local goes = min(here, over)
          s.units, over = s.units - goes, over - goes
          if goes == here then begin(s, s.first + 1) else s.skip = s.skip + goes end
        end
        local last = s.tail[#s.tail]
        if last and last[1] == moment and s.runs + #s.tail >= s.first then
          last[2] = last[2] + n
        else
          s.tail[#s.tail + 1] = { moment, n }
        end
        s.units, s.newest = s.units + n, moment
      end,
      refund = function(l, s, now, age, n)
        local gone = expired(l, s, now)
        local last, later = s.runs + #s.tail, 0
        while age > 0 and last >= s.first and run(s, last)[1] > now - age do
          later, last = later + units(s, last), last - 1
        end
        if n > s.units - later - gone then return false end
        s.units = s.units - n
        while n > 0 do
          local back = min(n, units(s, last))
          run(s, last)[2] = run(s, last)[2] - back
          if last <= s.runs then s.changed[last] = true end
          n, last = n - back, last - 1
        end
        last = s.runs + #s.tail
        while last >= s.first and units(s, last) == 0 do last = last - 1 end
        s.newest = last >= s.first and run(s, last)[1] or 0
        return true
      end,
      wait = function(l, s, now, n)
        local gone, i = expired(l, s, now)
        local counting = s.units - gone
        local must = counting + n - l.a
        if must <= 0 then return 0 end
        if must > counting then return -1 end
        local going = units(s, i)
        while going < must do
          i = i + 1
          going = going + units(s, i)
        end
        return max(run(s, i)[1] + l.b + 1 - now, 0)
      end,
      lasts = function(l) return l.b end,
    }
  end

  makers[7] = function()
    -- A state is that of a bucket, and behind it the state of the bucket of the limit alone.
    local bucket = makers[1]()
    local function own(l)
      l.own = l.own or { a = l.d, b = l.b, c = l.e }
      return l.own
    end
    local function below(l, s, now)
      return min(bucket.left(own(l), s[3], now), bucket.left(l, s, now))
    end
    return {
      fresh = function() return { 0, 0, { 0, 0 } } end,
      capacity = bucket.capacity,
      left = bucket.left,
      below = below,
      charge = function(l, s, now, n)
        bucket.charge(l, s, now, n)
        if bucket.left(own(l), s[3], now) >= n then bucket.charge(own(l), s[3], now, n) end
      end,
      refund = function(l, s, now, age, n)
        local back = bucket.refund(l, s, now, age, n)
        return bucket.refund(own(l), s[3], now, age, n) or back
      end,
      wait = bucket.wait,
      turn = bucket.turn,
      lasts = function(l) return max(bucket.lasts(l), bucket.lasts(own(l))) end,
    }
  end

  local kinds = {}
  local function kind_of(number)
    kinds[number] = kinds[number] or makers[number]()
    return kinds[number]
  end

  -- Most records of a call have equal limits, which are then read once.
  local known = {}
  local function limits_of(packed)
    local text = string.sub(packed, ASK_BYTES + 1)
    if known[text] then return known[text] end
    local limits = { keeps = 0, places = true, logs = 0 }
    local numbers = { struct.unpack('<' .. string.rep('d', #text / 8), text) }
    for at = 0, #text / 8 - 1, LIMIT do
      local kind = numbers[at + 1]
      local l = { kind = kind, is = kind_of(kind), a = numbers[at + 2], b = numbers[at + 3], c = numbers[at + 4], queue = numbers[at + 5] == 1, d = numbers[at + 6], e = numbers[at + 7] }
      l.bucket = kind == 1 or kind == 7
      l.margin, l.held = kind == 7 and 0 or l.d, kind == 7 and 0 or l.e
      l.capacity = l.is.capacity(l)
      l.near = floor(l.capacity / NEAR)
      limits.keeps = max(limits.keeps, l.is.lasts(l))
      limits.places = limits.places and l.bucket
      limits.logs = limits.logs + (kind == 5 and 1 or 0)
      limits[#limits + 1] = l
    end
    known[text] = limits
    return limits
  end

  -- Returns a limit with another amount and burst.
  local function resized(l, a, c)
    local other = {}
    for field, value in pairs(l) do other[field] = value end
    other.a, other.own = a, nil
    if l.bucket then other.c = c end
    if l.kind == 7 then other.d, other.e = min(l.d, a), min(l.e, c) end
    other.capacity = l.is.capacity(other)
    other.near = floor(other.capacity / NEAR)
    return other
  end

  -- Hosts have different limits while they are changed one after the other. The smaller amount and the smaller burst count for all, for as long as another host has told
  -- them lately. Otherwise hosts with more would use up, again and again, what hosts with less may have. Returns the limits that count, and whether that is news.
  -- What is told of each limit is: amount, burst, when, by whom, and the debt beyond the burst. That debt counts again when the burst grows.
  local function smallest(r, limits, now)
    local told, is_news, all, sender = r[LIMITS], false, limits, nil
    local is_new = not told or #told ~= 5 * #limits
    if is_new then
      told = {}
      r[LIMITS] = told
    end
    for n = 1, #limits do
      local l, at = limits[n], 5 * n - 4
      local burst = l.bucket and l.c or 0
      local is_told = not is_new and l.a == told[at] and burst == told[at + 1] and now <= told[at + 2] + TOLD / 2
      if not is_told then
        sender, is_news = sender or tonumber(string.sub(redis.sha1hex(host), 1, 8), 16), true
        if is_new then told[at], told[at + 1], told[at + 2], told[at + 3], told[at + 4] = l.a, burst, now, sender, 0 end
        local was_a, was_c, a, c = told[at], told[at + 1], l.a, burst
        if told[at + 3] ~= sender and now <= told[at + 2] + TOLD then a, c = min(a, was_a), min(c, was_c) end
        if a == l.a or (l.bucket and c == burst) then told[at + 2], told[at + 3] = now, sender end
        local state = l.bucket and r[STATES][n]
        if state and (a ~= was_a or c ~= was_c) then
          local owed = debt({ a = was_a }, state, now) + told[at + 4]
          state[1], state[2] = max(state[1], now), min(owed, c * l.b)
          told[at + 4] = owed - state[2]
        end
        told[at], told[at + 1] = a, c
        if a ~= l.a or c ~= burst then
          if all == limits then
            all = {}
            for field, value in pairs(limits) do all[field] = value end
          end
          all[n] = resized(l, a, c)
          all.keeps = max(all.keeps, l.is.lasts(all[n]))
        end
      end
    end
    return all, is_news
  end

  local function charge(limits, states, moment, units)
    if units > 0 then
      for n = 1, #limits do limits[n].is.charge(limits[n], states[n], moment, units) end
    end
  end

  -- Returns what is left of a limit below its margin.
  local function below(l, state, now)
    if l.is.below then return l.is.below(l, state, now) end
    return max(l.is.left(l, state, now) - l.margin - l.held, 0)
  end

  -- Returns how long until a limit has so many units if no host reports on what it holds: all of that is charged when the last lease ends, at the latest.
  local function wait_for_leases(l, state, r, now, units)
    if units > l.capacity then return -1 end
    local later = l.is.copy and l.is.copy(state) or cmsgpack.unpack(cmsgpack.pack(state))
    local from = now
    if r[OUT] > 0 then
      from = max(from, r[LATEST] + 1)
      l.is.charge(l, later, r[LATEST], r[OUT])
    end
    local wait = l.is.wait(l, later, from, units)
    return wait < 0 and -1 or from - now + wait
  end

  exchange = function(key, packed)
    local sequence, uses, holds, wanted, life, spend, reserved, patience, refund, age, peek = struct.unpack(ASK, packed)
    local stored = read(key)
    local r = stored or empty()
    local now, has_gone_back = time_of(r)
    local limits, is_news = smallest(r, limits_of(packed), now)
    local states, log = {}, 0
    for n = 1, #limits do
      local is, state = limits[n].is, r[STATES][n]
      states[n] = state or is.fresh()
      if is.open then
        log = log + 1
        states[n] = is.open(limits[n], states[n], key, log, not state, now)
      end
    end

    -- Leases that nobody has reported on in time are charged, at the moments at which they ended.
    local has_lapsed = false
    if r[ROWS] > 0 and r[NEXT] < now then
      local ended
      ended, has_lapsed = lapse(r, key, now)
      for n = 1, #ended do charge(limits, states, ended[n][1], ended[n][2]) end
    end

    local last, had, ends, counted, granted, is_there, member, score = own_row(r, key)
    local repeated, heard = sequence <= last, last
    if repeated then
      granted = is_there and sequence == last and granted or 0
    else
      charge(limits, states, now, min(uses, had))
      r[OUT], r[WANTED] = r[OUT] - had + holds, r[WANTED] - counted + wanted
      had, granted, heard, ends = holds, 0, sequence, now + life + floor(life / 8)
      r[LATEST] = max(r[LATEST], ends)
    end

    local refunded = false
    if refund > 0 then
      for n = 1, #limits do
        local l = limits[n]
        refunded = (refund <= l.capacity and l.is.refund(l, states[n], now, age, refund)) or refunded
      end
    end

    local wait, slowest, violated, above = 0, 0, 0, false
    local most_wait = limits.places and patience or 0
    for n = 1, #limits do
      local l, w, full = limits[n], nil, false
      local asked = spend + reserved + l.held
      local needed = asked + r[OUT]
      if l.queue and l.is.left(l, states[n], now) >= needed then
        w = l.is.turn(l, states[n], now)
      else
        full = l.queue
        if needed > l.capacity then
          w = wait_for_leases(l, states[n], r, now, asked)
        else
          w = l.is.wait(l, states[n], now, needed)
        end
      end
      if full or w < 0 or w > most_wait then violated = violated + 2 ^ min(n - 1, 51) end
      if (l.kind == 7 or l.margin > 0) and below(l, states[n], now) < spend + r[OUT] then above = true end
      if wait >= 0 and (w < 0 or w > wait) then
        wait, slowest = w, n - 1
      end
    end
    local spent = spend > 0 and violated == 0
    if spent and peek == 0 then charge(limits, states, now, spend) end

    local left, least, scarcest = MOST, MOST, 0
    for n = 1, #limits do
      local l = limits[n]
      left = min(left, max(l.is.left(l, states[n], now) - l.held, 0))
      local of = below(l, states[n], now)
      if of < least then
        least, scarcest = of, n - 1
      end
    end
    local free = max(max(left - r[OUT], 0) - reserved, 0)
    if not repeated then
      local plenty = wanted > 0 and free > 0
      for n = 1, #limits do plenty = plenty and free >= limits[n].near end
      if plenty then
        granted = share(free, wanted, r[WANTED] - wanted)
        had, r[OUT] = had + granted, r[OUT] + granted
      end
      write_row(r, key, member, score, sequence, had, ends, wanted, granted, now)
    end

    local nearest = wait == 0 and scarcest or slowest
    local shown, state = limits[nearest + 1], states[nearest + 1]
    local one_more = max(shown.is.left(shown, state, now), shown.held) + 1
    local at = #answers
    answers[at + 1], answers[at + 2], answers[at + 3] = (spent or refunded) and 1 or 0, wait, granted
    answers[at + 4], answers[at + 5] = max(below(shown, state, now) - r[OUT], 0), nearest
    answers[at + 6] = one_more > shown.capacity and 0 or shown.is.wait(shown, state, now, one_more)
    answers[at + 7], answers[at + 8] = violated, above and spent and 1 or 0
    answers[at + 9], answers[at + 10] = had, heard

    -- A refused request leaves no trace but the limits of its host. The last possible charge is that of a lease that is written off.
    local is_told = stored and is_news and peek == 0
    if (spent and peek == 0) or refunded or not repeated or has_lapsed or has_gone_back or is_told then
      local lasts = max(r[LATEST] - now, 0) + limits.keeps + patience
      if limits.logs > 0 then make_set(key) end
      for n = 1, #limits do
        local is = limits[n].is
        r[STATES][n] = is.close and is.close(limits[n], states[n], lasts, now) or states[n]
      end
      write(r, key, lasts, now, limits.logs > 0)
    end
  end
end

for n = 1, count do exchange(KEYS[n], ARGV[4 + n]) end
return answers

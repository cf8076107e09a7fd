-- The books of keys of requests. store/account.rs and meter are the same, number for number; read those first.
--
-- KEYS  one account each
-- ARGV  1: host   2: recent, like all times in us
--       then one for each account, which has doubles: sequence used held wanted life spend reserved patience refund age peek, and for each
--       limit kind a b c queue d e:
--         1 bucket amount period burst    2 fixed limit period -    3 sliding limit part -    4 weighted limit period -
--         5 log limit period -            6 calendar limit start end
--         7 soft, a bucket with a margin: d and e are amount and burst of the limit itself
--       Of all others d is the margin, and e what nobody gets at the moment.
-- Gives for each account: spent wait granted free nearest more violated above holds heard. A wait of -1 is for ever; the nearest limit is counted from 0, and
-- violated has a bit for each limit.
--
-- All numbers are whole and below 2^53. An account is { limits' states, hosts }, and hosts are flat: name, sequence, out, until, wanted,
-- granted, seen.
local HOST, LIMIT = 7, 7
local ASK, ASK_BYTES = '<ddddddddddd', 88
local MOST = 9007199254740991
local COUNT = 4294967295
local PARTS, NEAR = 61, 4

local host = ARGV[1]
local recent = tonumber(ARGV[2])
local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]

local floor, min, max = math.floor, math.min, math.max

local function ceiling(a, b)
  return floor((a + b - 1) / b)
end

-- Each kind: left(limit, state, now), charge(limit, state, now, units), refund(limit, state, now, age, units) and whether anything came back,
-- wait(limit, state, now, units), a fresh state, and how long a state means anything. They are made when they are first needed: a script keeps nothing from call to call, and most have one kind.
local makers = {}

makers[1] = function()
  -- A state is { moment, what is owed then }.
  local function debt(l, s, now)
    local passed = now - s[1]
    if passed <= 0 then return s[2] end
    -- After ceiling(MOST, l.a) nothing is owed, however much it was.
    local rest = s[2] - min(passed, ceiling(MOST, l.a)) * l.a
    return rest > 0 and rest or 0
  end
  return {
    fresh = function() return { 0, 0 } end,
    capacity = function(l) return l.c end,
    left = function(l, s, now) return floor(max(l.c * l.b - debt(l, s, now), 0) / l.b) end,
    charge = function(l, s, now, n)
      s[2] = min(debt(l, s, now) + n * l.b, MOST)
      s[1] = max(s[1], now)
    end,
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
  -- When the window around a moment begins, in seconds, and when it ends.
  local function span(l, now)
    if l.kind == 6 then
      -- The host has said when its day or month begins and ends; before and after it others of the same length.
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
  -- A state is { window, count of the one before, count }.
  local function pair(l, s, now)
    local at = floor(now / l.b)
    if s[1] > at then return s[1], 0, s[2], s[3] end
    if s[1] == at then return at, now % l.b, s[2], s[3] end
    return at, now % l.b, s[1] + 1 == at and s[3] or 0, 0
  end
  -- a * b / c rounded down, for products beyond 2^53: in two steps, as whole numbers.
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
    -- scaled has two results: the first is meant.
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
  -- A state is the moments themselves, in order. Those that have expired are dropped on every look.
  local function expire(l, s, now)
    local gone = 0
    while gone < #s and s[gone + 1] + l.b < now do
      gone = gone + 1
    end
    return gone
  end
  return {
    fresh = function() return {} end,
    capacity = function(l) return l.a end,
    left = function(l, s, now) return max(l.a - (#s - expire(l, s, now)), 0) end,
    charge = function(l, s, now, n)
      local gone = expire(l, s, now)
      local newest = #s > gone and s[#s] or 0
      n = min(n, l.a)
      gone = min(#s, max(gone, #s + n - l.a))
      local kept = #s - gone
      for i = 1, kept do s[i] = s[i + gone] end
      for i = kept + 1, max(#s, kept + n) do s[i] = i <= kept + n and max(now, newest) or nil end
    end,
    refund = function(l, s, now, age, n)
      local gone, last = expire(l, s, now), #s
      while age > 0 and last > 0 and s[last] > now - age do last = last - 1 end
      if n > last - gone then return false end
      for i = 1, n do table.remove(s, last + 1 - i) end
      return true
    end,
    wait = function(l, s, now, n)
      local gone = expire(l, s, now)
      local counting = #s - gone
      local must = counting + n - l.a
      if must <= 0 then return 0 end
      if must > counting then return -1 end
      return max(s[gone + must] + l.b + 1 - now, 0)
    end,
    lasts = function(l) return l.b end,
  }
end

makers[7] = function()
  -- A state is that of a bucket, and behind it that of the limit's own.
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

-- Most accounts of a call have the same limits, which are then read once.
local known = {}
local function limits_of(packed)
  local text = string.sub(packed, ASK_BYTES + 1)
  if known[text] then return known[text] end
  local limits = { keeps = 0, places = true }
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
    limits[#limits + 1] = l
  end
  known[text] = limits
  return limits
end

local function charge(limits, states, moment, units)
  if units > 0 then
    for n = 1, #limits do limits[n].is.charge(limits[n], states[n], moment, units) end
  end
end

-- What is left of a limit below its margin.
local function below(l, state, now)
  if l.is.below then return l.is.below(l, state, now) end
  return max(l.is.left(l, state, now) - l.margin - l.held, 0)
end

-- Leases in the order in which they run out.
local function in_order(leases)
  table.sort(leases, function(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]) end)
  return leases
end

-- How long until so many units are there of a limit if nobody reports on what is held.
local function wait_for_leases(l, state, hosts, now, units)
  if units > l.capacity then return -1 end
  local due, from = {}, now
  for h = 1, #hosts, HOST do
    if hosts[h + 2] > 0 then due[#due + 1] = { hosts[h + 3], hosts[h + 2] } end
  end
  local later = cmsgpack.unpack(cmsgpack.pack(state))
  for _, lease in ipairs(in_order(due)) do
    l.is.charge(l, later, lease[1], lease[2])
    from = max(from, lease[1] + 1)
  end
  local wait = l.is.wait(l, later, from, units)
  return wait < 0 and -1 or from - now + wait
end

local answers = {}
for i = 1, #KEYS do
  local packed = ARGV[2 + i]
  local sequence, uses, holds, wanted, life, spend, reserved, patience, refund, age, peek = struct.unpack(ASK, packed)
  local limits = limits_of(packed)

  local stored = redis.call('GET', KEYS[i])
  local states, hosts
  if stored then
    states, hosts = unpack(cmsgpack.unpack(stored))
  end
  states, hosts = states or {}, hosts or {}
  for n = 1, #limits do
    states[n] = states[n] or limits[n].is.fresh()
  end
  local now = clock

  -- Leases that nobody has reported on in time are charged, as they ran out.
  local ran_out = false
  for h = 1, #hosts, HOST do ran_out = ran_out or hosts[h + 3] < now end
  if ran_out then
    local due, kept = {}, {}
    for h = 1, #hosts, HOST do
      if hosts[h + 3] < now then
        due[#due + 1] = { hosts[h + 3], hosts[h + 2] }
      else
        for field = 0, HOST - 1 do kept[#kept + 1] = hosts[h + field] end
      end
    end
    for _, lease in ipairs(in_order(due)) do charge(limits, states, lease[1], lease[2]) end
    hosts = kept
  end

  local own, out, others, latest = nil, 0, 0, now
  for h = 1, #hosts, HOST do
    if hosts[h] == host then
      own = h
    else
      out, latest = out + hosts[h + 2], max(latest, hosts[h + 3])
      if hosts[h + 6] + recent >= now then others = others + hosts[h + 4] end
    end
  end
  local last = own and hosts[own + 1] or 0
  local granted, repeated = 0, sequence <= last
  if repeated then
    granted = sequence == last and own and hosts[own + 5] or 0
  else
    local lease = min(uses, own and hosts[own + 2] or 0)
    own = own or #hosts + 1
    hosts[own], hosts[own + 1], hosts[own + 2], hosts[own + 3] = host, sequence, holds, now + life + floor(life / 8)
    hosts[own + 4], hosts[own + 5], hosts[own + 6] = wanted, 0, now
    charge(limits, states, now, lease)
  end
  if own then
    out, latest = out + hosts[own + 2], max(latest, hosts[own + 3])
  end

  local refunded = false
  if refund > 0 then
    for n = 1, #limits do
      local l = limits[n]
      refunded = (refund <= l.capacity and l.is.refund(l, states[n], now, age, refund)) or refunded
    end
  end

  local wait, slowest, violated, above = 0, 0, 0, false
  local longest = limits.places and patience or 0
  for n = 1, #limits do
    local l, w, full = limits[n], nil, false
    local asked = spend + reserved + l.held
    local needed = asked + out
    if l.queue and l.is.left(l, states[n], now) >= needed then
      w = l.is.turn(l, states[n], now)
    else
      full = l.queue
      if needed > l.capacity then
        w = wait_for_leases(l, states[n], hosts, now, asked)
      else
        w = l.is.wait(l, states[n], now, needed)
      end
    end
    if full or w < 0 or w > longest then violated = violated + 2 ^ min(n - 1, 51) end
    if (l.kind == 7 or l.margin > 0) and below(l, states[n], now) < spend + out then above = true end
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
  local free = max(max(left - out, 0) - reserved, 0)
  if not repeated and wanted > 0 and free > 0 then
    local plenty = true
    for n = 1, #limits do plenty = plenty and free >= limits[n].near end
    if plenty then
      local share = floor(free * (wanted / (wanted + others)))
      granted = min(wanted, max(share, free - others, 1), free)
      hosts[own + 2], hosts[own + 5] = hosts[own + 2] + granted, granted
      out = out + granted
    end
  end

  -- Who is refused leaves no trace. What is charged last is a lease that is written off.
  if (spent and peek == 0) or refunded or not repeated or ran_out then
    local keeps = latest - now + limits.keeps + patience
    redis.call('SET', KEYS[i], cmsgpack.pack({ states, hosts }), 'PX', floor(keeps / 1000) + 1000)
  end
  local nearest = wait == 0 and scarcest or slowest
  local shown, state = limits[nearest + 1], states[nearest + 1]
  local one_more = max(shown.is.left(shown, state, now), shown.held) + 1
  local at = 10 * (i - 1)
  answers[at + 1], answers[at + 2], answers[at + 3] = (spent or refunded) and 1 or 0, wait, granted
  answers[at + 4], answers[at + 5] = max(below(shown, state, now) - out, 0), nearest
  answers[at + 6] = one_more > shown.capacity and 0 or shown.is.wait(shown, state, now, one_more)
  answers[at + 7], answers[at + 8] = violated, above and spent and 1 or 0
  answers[at + 9], answers[at + 10] = own and hosts[own + 2] or 0, own and hosts[own + 1] or 0
end
return answers

-- The books of limits that hold on all hosts together. cluster/ledger.rs is the same, number for number; read that first.
--
-- KEYS  1: since when this server has known everything   2..: one ledger each
-- ARGV  1: host   2: lifetime   3: margin   4: recent, all in us
--       then for each ledger: sequence used held wanted amount period burst
-- Gives for each ledger: units, lifetime, and whether other hosts have the same limit: 0 they do, 1 one says less, 2 one says more
--
-- All numbers are whole and below 2^53; the level may be below zero. A ledger is { level, carry, at, since, hosts, limit }, and hosts are flat:
-- name, sequence, out, until, wanted, granted, seen. The limit is the smallest that hosts say: amount, period, burst, when that rate was last said,
-- when that burst was, when one said more.
local HOST = 7

local host = ARGV[1]
local lifetime, margin, recent = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- Another run id is another process: restarted, or promoted, and perhaps without the last writes. No key: everything was lost.
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local known, since, longest = string.match(redis.call('GET', KEYS[1]) or '', '^(%x+) (%d+) (%d+)$')
since, longest = tonumber(since), tonumber(longest)
-- A clock that goes back behind that moment begins anew.
if known ~= run or longest < lifetime + margin or since > now then
  since = known == run and math.min(since, now) or now
  longest = math.max(longest or 0, lifetime + margin)
  redis.call('SET', KEYS[1], string.format('%s %.0f %.0f', run, since, longest))
end
local cold = now < since + longest

local function divided(a, b)
  return math.floor(a / b)
end

local function earlier(a, b)
  return a[1] < b[1]
end

local answers = {}
for i = 2, #KEYS do
  local base = 4 + (i - 2) * 7
  local sequence, used, held = tonumber(ARGV[base + 1]), tonumber(ARGV[base + 2]), tonumber(ARGV[base + 3])
  local wanted, amount, period = tonumber(ARGV[base + 4]), tonumber(ARGV[base + 5]), tonumber(ARGV[base + 6])
  local burst = tonumber(ARGV[base + 7])
  local stored = redis.call('GET', KEYS[i])
  local units, lasts, differs = 0, lifetime, 0
  if stored or used > 0 or held > 0 or wanted > 0 then
    local level, carry, at, born, hosts, least
    if stored then
      level, carry, at, born, hosts, least = unpack(cmsgpack.unpack(stored))
    end
    if born ~= since then
      -- Nothing was left when this server began to know everything; what has come in since then is there.
      level, carry, at, born, hosts, least = 0, 0, since, since, {}, nil
    end
    if at > now then
      -- The clock has gone back: it counts from here. All leases were given before now.
      at = now
      for h = 1, #hosts, HOST do
        hosts[h + 3], hosts[h + 6] = math.min(hosts[h + 3], now + longest), math.min(hosts[h + 6], now)
      end
      for field = 4, least and 6 or 0 do
        least[field] = math.min(least[field], now)
      end
    end

    -- Look at everybody once. Mostly nobody has gone: then nothing is copied and no table made, which would cost about a quarter more.
    local due, out, others, own, place = nil, 0, 0, nil, 1
    local before = #hosts
    for h = 1, before, HOST do
      out = out + hosts[h + 2]
      if hosts[h + 3] < now then
        due = due or {}
        due[#due + 1] = { hosts[h + 3], hosts[h + 2] }
      else
        if place < h then
          for field = 0, HOST - 1 do
            hosts[place + field] = hosts[h + field]
          end
        end
        if hosts[h] == host then
          own = place
        elseif hosts[h + 6] + recent >= now then
          others = others + hosts[h + 4]
        end
        place = place + HOST
      end
    end

    -- The smallest limit that hosts say is in force, until nobody that is heard of has said so for as long as a lease can last.
    local alone = place == (own and HOST + 1 or 1)
    local limit = least or { amount, period, burst, 0, 0, 0 }
    local said_amount, said_period, said_burst = amount, period, burst
    if amount * limit[2] <= limit[1] * period or alone or limit[4] + longest < now then
      limit[1], limit[2], limit[4] = amount, period, now
    end
    if burst <= limit[3] or alone or limit[5] + longest < now then
      limit[3], limit[5] = burst, now
    end
    amount, period, burst = limit[1], limit[2], limit[3]
    if amount ~= said_amount or period ~= said_period or burst ~= said_burst then
      limit[6], differs = now, 1
    elseif limit[6] > 0 and not alone and limit[6] + longest >= now then
      differs = 2
    end

    local function refill(moment)
      local room = math.min(math.max(burst - level - out, 0), burst)
      level = math.min(level, burst)
      local passed = math.min(math.max(moment - at, 0), divided((room + 1) * period, amount) + 1)
      at = math.max(at, moment)
      local total = passed * amount + math.min(carry, period - 1)
      local came = divided(total, period)
      if came >= room then
        level, carry = level + room, 0
      else
        level, carry = level + came, total - came * period
      end
    end

    -- What nobody has reported in time is spent. One after the other: until then it left less room for what came in.
    if due then
      for field = before, place, -1 do
        hosts[field] = nil
      end
      table.sort(due, earlier)
      for _, lease in ipairs(due) do
        refill(lease[1])
        out = out - lease[2]
      end
    end
    refill(now)

    local last = own and hosts[own + 1] or 0
    if sequence <= last then
      -- Said before: the same answer, or none to what has been superseded. Who has said nothing else leaves no trace.
      units = own and sequence == last and hosts[own + 5] or 0
      lasts = math.max(math.max((own and hosts[own + 3] or 0) - margin, 0) - now, 0)
    else
      local had = own and hosts[own + 2] or 0
      local left = had - math.min(used, had)
      level = level + left - held
      if wanted > 0 and level > 0 and not cold then
        local share = math.floor(level * (wanted / (wanted + others)))
        units = math.min(wanted, math.max(share, level - others, 1), level)
      end
      level = level - units
      own = own or place
      hosts[own] = host
      hosts[own + 1], hosts[own + 2], hosts[own + 3] = sequence, held + units, now + lifetime + margin
      hosts[own + 4], hosts[own + 5], hosts[own + 6] = wanted, units, now
    end
    -- Whoever comes back after that finds a full bucket and nobody with a lease: what a new ledger is.
    local idle = divided(burst * period, amount) + 2 * longest
    redis.call('SET', KEYS[i], cmsgpack.pack({ level, carry, at, born, hosts, limit }), 'PX', divided(idle, 1000) + 1000)
  end
  answers[#answers + 1] = units
  answers[#answers + 1] = lasts
  answers[#answers + 1] = differs
end
return answers

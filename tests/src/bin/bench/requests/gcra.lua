-- KEYS[1]: the time at which its bucket is full again, in microseconds. ARGV: burst, count, period in seconds.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval = ARGV[3] * 1000000 / ARGV[2]
local full_at = tonumber(redis.call('GET', KEYS[1]) or now)
if full_at < now then full_at = now end
local next = full_at + interval
local over = next - now - interval * ARGV[1]
if over > 0 then
  return {1, ARGV[1], 0, math.ceil(over / 1000000), math.ceil((full_at - now) / 1000000)}
end
redis.call('SET', KEYS[1], string.format('%.0f', next), 'PX', math.ceil((next - now) / 1000))
return {0, ARGV[1], math.floor(-over / interval), -1, math.ceil((next - now) / 1000000)}

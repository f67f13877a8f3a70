-- Carries out one conditional write on the hash KEYS[1]. ARGV has instructions of three words each: first what must hold, then what changes.
-- Answers 2 and the type where the key holds something else; 0 and the record where a condition fails; else 1, with the record if it is asked for.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'none' and kind ~= 'hash' then
  return {2, kind}
end
local met = redis.call('HGETALL', KEYS[1])
local record = {}
for i = 1, #met, 2 do
  record[met[i]] = met[i + 1]
end

local holds = {
  absent = function() return #met == 0 end,
  there = function() return #met > 0 end,
  is = function(field, value) return record[field] == value end,
  no = function(field) return record[field] == nil end,
  below = function(field, value) return record[field] ~= nil and tonumber(record[field]) < tonumber(value) end,
  -- A step's entry begins with its revision.
  newer = function(field, value)
    local known = record[field] and tonumber(string.match(record[field], '^%d+')) or 0
    return known < tonumber(string.match(value, '^%d+'))
  end,
}
for i = 1, #ARGV, 3 do
  local condition = holds[ARGV[i]]
  if condition and not condition(ARGV[i + 1], ARGV[i + 2]) then
    return {0, met}
  end
end

local whole = false
for i = 1, #ARGV, 3 do
  local word, field, value = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if word == 'set' then
    redis.call('HSET', KEYS[1], field, value)
  elseif word == 'del' then
    redis.call('HDEL', KEYS[1], field)
  elseif word == 'keep' then
    -- A takeover keeps nothing, or the steps, or the last error, too.
    for name in pairs(record) do
      local is_kept = field ~= 'nothing' and string.sub(name, 1, 5) == 'step:' or field == 'error' and name == 'last_error'
      if not is_kept then
        redis.call('HDEL', KEYS[1], name)
      end
    end
  elseif word == 'until' then
    redis.call('PEXPIREAT', KEYS[1], value)
  elseif word == 'whole' then
    whole = true
  end
end
return {1, whole and redis.call('HGETALL', KEYS[1]) or {}}

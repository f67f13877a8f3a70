-- Carries out one conditional write on the hash KEYS[1]. ARGV has instructions of three words each: what must hold, and what changes.
-- Answers 2 and the type where the key holds something else; 0 and the record where a condition fails; 3 and the error where a part of the changes
-- applied before it; else 1, with the record if it is asked for.
-- 'again' comes first: where a record with this owner fails a condition, its owner is written again, so that WAIT has something to wait for. An error
-- of that is the third answer.
local key = KEYS[1]
local is_written, is_new, fields = false, false, {}

local function holds(word, field, value)
  if word == 'absent' then
    return redis.call('EXISTS', key) == 0
  elseif word == 'there' then
    return redis.call('EXISTS', key) == 1
  elseif word == 'held' then
    local known = redis.call('HMGET', key, 'status', 'owner')
    return known[1] == field and known[2] == value
  elseif word == 'is' then
    return redis.call('HGET', key, field) == value
  elseif word == 'no' then
    return redis.call('HEXISTS', key, field) == 0
  elseif word == 'below' then
    local known = redis.call('HGET', key, field)
    return known and tonumber(known) < tonumber(value)
  elseif word == 'newer' then
    -- A step's entry begins with its revision.
    local known = redis.call('HGET', key, field)
    return (known and tonumber(string.match(known, '^%d+')) or 0) < tonumber(string.match(value, '^%d+'))
  end
  return true
end

local function refused(again)
  local failure = nil
  if again and redis.call('HGET', key, 'owner') == again then
    local done = redis.pcall('HSET', key, 'owner', again)
    failure = type(done) == 'table' and done.err or nil
  end
  return {0, redis.call('HGETALL', key), failure}
end

local function write()
  local sets, is_set, dels, kept, expires, whole, again = {}, {}, {}, nil, nil, false, nil
  for i = 1, #ARGV, 3 do
    local word, field, value = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    is_new = is_new or word == 'absent'
    if word == 'set' then
      fields[#fields + 1] = field
      sets[#sets + 1] = field
      sets[#sets + 1] = value
      is_set[field] = true
    elseif word == 'del' then
      dels[#dels + 1] = field
    elseif word == 'keep' then
      kept = field
    elseif word == 'until' then
      expires = value
    elseif word == 'whole' then
      whole = true
    elseif word == 'again' then
      again = value
    elseif not holds(word, field, value) then
      return refused(again)
    end
  end

  if kept then
    -- A takeover keeps nothing, or the steps, or the last error, too.
    for _, name in ipairs(redis.call('HKEYS', key)) do
      local is_step = kept ~= 'nothing' and string.sub(name, 1, 5) == 'step:'
      if not is_step and not is_set[name] and not (kept == 'error' and name == 'last_error') then
        dels[#dels + 1] = name
      end
    end
  end
  -- First, since a full memory refuses it: nothing has changed then.
  if #sets > 0 then
    redis.call('HSET', key, unpack(sets))
    is_written = true
  end
  if #dels > 0 then
    redis.call('HDEL', key, unpack(dels))
  end
  if expires then
    redis.call('PEXPIREAT', key, expires)
  end
  return {1, whole and redis.call('HGETALL', key) or {}}
end

local done, answer = pcall(write)
if done then
  return answer
end
if is_written and is_new then
  -- What was absent is absent again: a record whose end could not be set would stay for ever.
  is_written = type(redis.pcall('HDEL', key, unpack(fields))) ~= 'number'
end
if is_written then
  return {3, tostring(answer)}
end
local kind = redis.call('TYPE', key).ok
if kind ~= 'none' and kind ~= 'hash' then
  return {2, kind}
end
error(answer)

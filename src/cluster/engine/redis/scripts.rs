//! Scripts in Lua, which the engine runs atomically. The first argument names the operation.
//!
//! A record is a hash: `t` term, `o` owner (empty after a release), `l` lifetime in milliseconds, `r`
//! sealed record, and fields whose names start with `f`. The life of a member is a key that expires,
//! with the text `INCARNATION INSTANCE`; its description is in the hash of all members.

use std::sync::LazyLock;

use redis::Script;

/// The key is the record. Arguments: the operation, the replica, the term that it knows; then for
/// `open` and `save` the record and its lifetime, for `field` a name and a value if it is not removed, and for
/// `claim` the expected owner. Answers status, term and owner; the status is 1 for done, 0 for
/// refused, -1 for missing.
pub(super) static RECORD: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "\
local key, act, replica, term = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local h = redis.call('HMGET', key, 't', 'o', 'l')
local stored, owner = tonumber(h[1] or '0'), h[2]
local is_own = stored == term and owner == replica
if act == 'save' or act == 'open' then
  if h[1] and act == 'open' or stored >= term and not is_own then return {0, h[1], owner} end
  if not is_own then redis.call('DEL', key) end
  redis.call('HSET', key, 't', ARGV[3], 'o', replica, 'r', ARGV[4], 'l', ARGV[5])
  redis.call('PEXPIRE', key, ARGV[5])
  return {1, ARGV[3], replica}
end
if not h[1] then return {-1, '0', ''} end
if act == 'claim' then
  if owner ~= '' and owner ~= ARGV[4] then return {0, h[1], owner} end
  local next = string.format('%.0f', math.max(stored, term) + 1)
  redis.call('HSET', key, 't', next, 'o', replica)
  redis.call('PEXPIRE', key, h[3])
  return {1, next, replica}
end
if act == 'end' and stored < term then is_own = true end
if not is_own then return {0, h[1], owner} end
if act == 'end' then redis.call('DEL', key)
elseif act == 'release' then redis.call('HSET', key, 'o', '')
elseif ARGV[5] then redis.call('HSET', key, ARGV[4], ARGV[5])
else redis.call('HDEL', key, ARGV[4]) end
return {1, h[1], owner}",
    )
});

/// The keys are the life of the number and the hash of all members. Arguments: the operation,
/// incarnation, number; then for `take` and `beat` the instance, the lifetime in milliseconds, and
/// the description. Answers 1 for done, 0 for refused, -1 if the life of a beat has expired.
pub(super) static MEMBER: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "\
local act, given, number = ARGV[1], ARGV[2], ARGV[3]
local life = redis.call('GET', KEYS[1])
local incarnation, instance = string.match(life or '', '^(%d+) (%S+)$')
if act == 'take' then
  if life and (instance ~= ARGV[4] or tonumber(incarnation) >= tonumber(given)) then return 0 end
elseif life then
  if incarnation ~= given then return 0 end
elseif act == 'beat' then
  return -1
end
if act == 'leave' then
  redis.call('DEL', KEYS[1])
  redis.call('HDEL', KEYS[2], number)
else
  redis.call('SET', KEYS[1], given .. ' ' .. ARGV[4], 'PX', ARGV[5])
  redis.call('HSET', KEYS[2], number, ARGV[6])
end
return 1",
    )
});

/// The key is the hash of counters.
pub(super) static INCARNATION: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "\
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local last = tonumber(redis.call('HGET', KEYS[1], 'incarnation') or '0')
if now <= last then now = last + 1 end
local text = string.format('%.0f', now)
redis.call('HSET', KEYS[1], 'incarnation', text)
return text",
    )
});

//! Scripts in Lua, which the engine runs atomically.
//!
//! A record is a hash: `t` term, `o` owner (empty after a release), `l` lifetime in
//! milliseconds, `r` sealed record, and fields whose names begin with `f`. Scripts about records answer status, term and owner; a status is 1 for done, 0
//! for refused, -1 for missing. A member's row is the text `INCARNATION INSTANCE JSON`.

use std::sync::LazyLock;

use redis::Script;

pub(super) struct Scripts {
    pub(super) open: Script,
    pub(super) save: Script,
    pub(super) field: Script,
    pub(super) claim: Script,
    pub(super) release: Script,
    pub(super) end: Script,
    pub(super) incarnation: Script,
    pub(super) take: Script,
    pub(super) beat: Script,
    pub(super) leave: Script,
}

pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    open: Script::new(OPEN),
    save: Script::new(SAVE),
    field: Script::new(FIELD),
    claim: Script::new(CLAIM),
    release: Script::new(RELEASE),
    end: Script::new(END),
    incarnation: Script::new(INCARNATION),
    take: Script::new(TAKE),
    beat: Script::new(BEAT),
    leave: Script::new(LEAVE),
});

/// The text of all scripts, for `SCRIPT LOAD`.
pub(super) const TEXTS: &[&str] = &[
    OPEN,
    SAVE,
    FIELD,
    CLAIM,
    RELEASE,
    END,
    INCARNATION,
    TAKE,
    BEAT,
    LEAVE,
];

/// Owner, record, lifetime in milliseconds.
const OPEN: &str = "\
local h = redis.call('HMGET', KEYS[1], 't', 'o')
if h[1] then return {0, h[1], h[2]} end
redis.call('HSET', KEYS[1], 't', '1', 'o', ARGV[1], 'r', ARGV[2], 'l', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {1, '1', ARGV[1]}";

/// Owner, term, record, lifetime in milliseconds.
const SAVE: &str = "\
local h = redis.call('HMGET', KEYS[1], 't', 'o')
if h[1] then
  local stored, given = tonumber(h[1]), tonumber(ARGV[2])
  if stored > given or (stored == given and h[2] ~= ARGV[1]) then return {0, h[1], h[2]} end
  if stored < given then redis.call('DEL', KEYS[1]) end
end
redis.call('HSET', KEYS[1], 't', ARGV[2], 'o', ARGV[1], 'r', ARGV[3], 'l', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {1, ARGV[2], ARGV[1]}";

/// Owner, term, name of the field, and its value if it is not removed.
const FIELD: &str = "\
local h = redis.call('HMGET', KEYS[1], 't', 'o')
if not h[1] then return {-1, '0', ''} end
if h[1] ~= ARGV[2] or h[2] ~= ARGV[1] then return {0, h[1], h[2]} end
if ARGV[4] then redis.call('HSET', KEYS[1], ARGV[3], ARGV[4])
else redis.call('HDEL', KEYS[1], ARGV[3]) end
return {1, h[1], h[2]}";

/// New owner, expected owner, term that the claimant knows.
const CLAIM: &str = "\
local h = redis.call('HMGET', KEYS[1], 't', 'o', 'l')
if not h[1] then return {-1, '0', ''} end
if h[2] ~= '' and h[2] ~= ARGV[2] then return {0, h[1], h[2]} end
local term = string.format('%.0f', math.max(tonumber(h[1]), tonumber(ARGV[3])) + 1)
redis.call('HSET', KEYS[1], 't', term, 'o', ARGV[1])
redis.call('PEXPIRE', KEYS[1], h[3])
return {1, term, ARGV[1]}";

/// Owner, term.
const RELEASE: &str = "\
local h = redis.call('HMGET', KEYS[1], 't', 'o')
if not h[1] then return {-1, '0', ''} end
if h[1] ~= ARGV[2] or h[2] ~= ARGV[1] then return {0, h[1], h[2]} end
redis.call('HSET', KEYS[1], 'o', '')
return {1, h[1], ''}";

/// Owner, term.
const END: &str = "\
local h = redis.call('HMGET', KEYS[1], 't', 'o')
if not h[1] then return {-1, '0', ''} end
local stored, given = tonumber(h[1]), tonumber(ARGV[2])
if stored > given or (stored == given and h[2] ~= ARGV[1]) then return {0, h[1], h[2]} end
redis.call('DEL', KEYS[1])
return {1, h[1], h[2]}";

const INCARNATION: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local last = tonumber(redis.call('HGET', KEYS[1], 'incarnation') or '0')
if now <= last then now = last + 1 end
local text = string.format('%.0f', now)
redis.call('HSET', KEYS[1], 'incarnation', text)
return text";

/// The keys are the number's row and the hash of all members. Incarnation, instance, row, lifetime
/// in milliseconds, number, entry in the hash.
const TAKE: &str = "\
local row = redis.call('GET', KEYS[1])
if row then
  local incarnation, instance = string.match(row, '^(%d+) (%S+) ')
  if instance ~= ARGV[2] or tonumber(incarnation) >= tonumber(ARGV[1]) then return 0 end
end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
redis.call('HSET', KEYS[2], ARGV[5], ARGV[6])
return 1";

/// Incarnation, row, lifetime in milliseconds.
const BEAT: &str = "\
local row = redis.call('GET', KEYS[1])
if not row then return -1 end
if string.match(row, '^(%d+) ') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1";

/// The keys are the number's row and the hash of all members. Incarnation, number.
const LEAVE: &str = "\
local row = redis.call('GET', KEYS[1])
if row and string.match(row, '^(%d+) ') ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('HDEL', KEYS[2], ARGV[2])
return 1";

-- The request that wrk sends, described by arguments, and its result as one line of JSON.
--
-- wrk ... -s request.lua URL -- METHOD CONTENT_BYTES FURTHER_FIELDS TURN_MS ORGS [ORGS ...]
-- If ORGS is 0, all requests name the same org, and the script renders the request once. Otherwise each request names one
-- of ORGS orgs at random. The ids are those of each-org.mjs. All have the same length, so that only their number differs.
-- Several ORGS take turns of TURN_MS each. The turns follow the monotonic clock, so another process knows the current turn.

local ffi = require("ffi")
ffi.cdef[[
  typedef struct { long seconds; long nanoseconds; } instant;
  int clock_gettime(int clock, instant *now);
]]

local SEED = 20261120
local CLOCK_MONOTONIC = 1

local function rendered(orgs)
  local requests = {}
  for number = 1, orgs do
    wrk.headers["X-Org-Id"] = string.format("org-%05d", number - 1)
    requests[number] = wrk.format()
  end
  return requests
end

local function inTurns(sets, turnMs)
  local now = ffi.new("instant")
  return function()
    ffi.C.clock_gettime(CLOCK_MONOTONIC, now)
    local ms = tonumber(now.seconds) * 1e3 + tonumber(now.nanoseconds) / 1e6
    local set = sets[math.floor(ms / turnMs) % #sets + 1]
    return set[math.random(#set)]
  end
end

function init(args)
  wrk.method = args[1]
  local contentBytes, furtherFields, turnMs = tonumber(args[2]), tonumber(args[3]), tonumber(args[4])
  if contentBytes > 0 then
    wrk.body = string.rep("x", contentBytes)
  end
  for number = 1, furtherFields do
    wrk.headers[string.format("X-Field-%03d", number)] = "a value of usual length"
  end
  wrk.headers["X-Org-Id"] = "acme"
  if args[5] == "0" then
    return
  end

  local sets = {}
  for number = 5, #args do
    sets[#sets + 1] = rendered(tonumber(args[number]))
  end
  math.randomseed(SEED)
  if #sets > 1 then
    request = inTurns(sets, turnMs)
    return
  end
  local requests = sets[1]
  request = function()
    return requests[math.random(#requests)]
  end
end

-- JSON knows no NaN, and wrk tells 0 where nothing came back.
local function milliseconds(latency, percent)
  local micros = latency:percentile(percent)
  return micros == 0 and "null" or string.format("%.4f", micros / 1000)
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests":%d,"refused":%d,"broken":%d,"p50Ms":%s,"p99Ms":%s}\n',
    summary.requests,
    errors.status,
    errors.connect + errors.read + errors.write + errors.timeout,
    milliseconds(latency, 50),
    milliseconds(latency, 99)
  ))
end

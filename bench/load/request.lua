-- The request that wrk sends, described by arguments, and its result as one line of JSON.
--
-- wrk ... -s request.lua URL -- METHOD CONTENT_BYTES FURTHER_FIELDS ORGS
-- ORGS 0: always the same org, and the request is rendered once; from 1 on: one of so many orgs at random.

local SEED = 20261120

function init(args)
  wrk.method = args[1]
  local contentBytes, furtherFields, orgs = tonumber(args[2]), tonumber(args[3]), tonumber(args[4])
  if contentBytes > 0 then
    wrk.body = string.rep("x", contentBytes)
  end
  for number = 1, furtherFields do
    wrk.headers[string.format("X-Field-%03d", number)] = "a value of usual length"
  end
  wrk.headers["X-Org-Id"] = "acme"
  if orgs == 0 then
    return
  end

  local requests = {}
  for number = 1, orgs do
    wrk.headers["X-Org-Id"] = "org-" .. (number - 1)
    requests[number] = wrk.format()
  end
  math.randomseed(SEED)
  request = function()
    return requests[math.random(orgs)]
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

-- Sends requests of a file in turn, and prints what was measured as one line of JSON. For _wire_load.py.
local requests = {}
local turn = 0

function init(args)
  local file = assert(io.open(args[1], "rb"))
  local text = file:read("*a")
  file:close()
  local at = 1
  while at <= #text do  -- each request follows its size, in decimal digits and a line break
    local first, last, size = text:find("^(%d+)\n", at)
    requests[#requests + 1] = text:sub(last + 1, last + tonumber(size))
    at = last + 1 + tonumber(size)
  end
end

function request()
  turn = turn % #requests + 1
  return requests[turn]
end

function done(summary, latency, _)
  local errors = summary.errors
  io.write(string.format(
    '{"answers": %d, "micros": %d, "p50_us": %d, "p99_us": %d, "failed": %d, "lost": %d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), errors.status,
    errors.connect + errors.read + errors.write + errors.timeout))
end

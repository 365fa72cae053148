"use strict";
// Numbers from /metrics, and their changes between two readings.
// In: Prometheus' text. Out: rates, shares and percentiles. Knows nothing of the page.

// Metrics read, with the labels kept: series that differ in other labels are summed.
const TAKEN = new Map(Object.entries({
  tierlab_uptime_seconds: [],
  tierlab_build_info: ["version", "onnxruntime", "providers", "variant", "model_tier", "feature_tier", "feature_location", "feature_notes"],
  tierlab_in_flight_requests: [],
  tierlab_in_flight_limit_requests: [],
  tierlab_requests_total: ["model", "code"],
  tierlab_inferences_total: [],
  tierlab_cancelled_total: [],
  tierlab_request_duration_seconds_bucket: ["model", "tier", "le"],
  tierlab_stage_duration_seconds_sum: ["stage"],
  tierlab_tier_requests_total: ["role", "tier"],
  tierlab_tier_wire_bytes_total: ["role", "tier"],
  tierlab_cache_hits_total: ["tier"],
  tierlab_cache_misses_total: ["tier"],
  tierlab_cache_bytes: ["tier"],
  tierlab_cache_capacity_bytes: ["tier"],
  tierlab_staged_hits_total: ["tier"],
  tierlab_staged_misses_total: ["tier"],
  tierlab_staged_bytes: ["tier"],
  tierlab_staged_capacity_bytes: ["tier"],
}));

// One reading: { at, values }, where values has a map for each name, from the labels' values (as JSON) to the number.
function readMetrics(text, at) {
  const values = new Map([...TAKEN.keys()].map(name => [name, new Map()]));
  for (const line of text.split("\n")) {
    const [, name, labels, value] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) || [];
    const wanted = TAKEN.get(name);
    if (!wanted) continue;
    const given = new Map();
    for (const [, label, escaped] of (labels || "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
      given.set(label, escaped.replace(/\\(.)/g, (_, letter) => letter === "n" ? "\n" : letter));
    }
    const key = JSON.stringify(wanted.map(label => given.get(label) ?? ""));
    const series = values.get(name);
    series.set(key, (series.get(key) ?? 0) + Number(value));
  }
  return { at, values };
}

// The labels of a name, as lists in the order of TAKEN, each with its number.
function levels(reading, name) {
  return [...reading.values.get(name)].map(([key, value]) => ({ labels: JSON.parse(key), value }));
}

// The number of a name without labels.
function level(reading, name) {
  return reading.values.get(name).get("[]") ?? 0;
}

// Growth of each series of a name between two readings.
function growth(from, to, name) {
  const before = from.values.get(name);
  return [...to.values.get(name)].map(([key, value]) =>
    ({ labels: JSON.parse(key), value: Math.max(0, value - (before.get(key) ?? 0)) }));
}

function sum(grown, has = () => true) {
  return grown.reduce((total, { labels, value }) => has(labels) ? total + value : total, 0);
}

// Cumulative requests of a histogram by upper bound, lowest first: of one model, or of all.
function buckets(grown, model) {
  const counts = new Map();
  for (const { labels: [of, , bound], value } of grown) {
    if (model !== undefined && of !== model) continue;
    const le = bound === "+Inf" ? Infinity : Number(bound);
    counts.set(le, (counts.get(le) ?? 0) + value);
  }
  return [...counts].sort(([a], [b]) => a - b);
}

// A percentile in seconds, interpolated within its bucket like Prometheus' histogram_quantile; `beyond` if it is past the last
// bound, which is then returned. None if there are fewer requests than the percentile needs: one beyond it.
function percentile(counted, quantile) {
  const total = counted.length ? counted[counted.length - 1][1] : 0;
  const needed = neededFor(quantile);
  if (total < needed) return { total, needed };
  const rank = quantile * total;
  let low = 0, before = 0;
  for (const [bound, count] of counted) {
    if (count >= rank) {
      if (bound === Infinity) return { total, needed, seconds: low, beyond: true };
      return { total, needed, seconds: low + (bound - low) * (rank - before) / (count - before || 1) };
    }
    low = bound;
    before = count;
  }
  return { total, needed };
}

function neededFor(quantile) {
  return Math.ceil(1 / (1 - quantile) - 1e-9);
}

// Formats numbers: three digits and a suitable unit.
function digits(value) {
  if (value === 0) return "0";
  if (value >= 1000) return String(Math.round(value));
  return String(Number(value.toPrecision(3)));
}

function inUnits(value, base, units) {
  let at = 0;
  while (at + 1 < units.length && Number(digits(value)) >= base) {
    value /= base;
    at += 1;
  }
  return `${digits(value)} ${units[at]}`;
}

const showTime = seconds => seconds >= 0.9995 ? `${digits(seconds)} s` : inUnits(seconds * 1e9, 1000, ["ns", "µs", "ms"]);
const showBytes = bytes => inUnits(bytes, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
const showRate = perSecond => `${digits(perSecond)}/s`;
const showShare = share => `${(100 * share).toFixed(1)} %`;

function showAge(seconds) {
  const [days, hours, minutes] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return minutes ? `${minutes} min` : `${Math.floor(seconds)} s`;
}

"use strict";
// The page: polls the server every 2 s while it is visible, and shows the figures.
// Everything is inserted as text, never as markup: names of models come from others.

const POLL_MS = 2000;
const TIMEOUT_MS = 5000;
// The full index may make the server list its tier, and models change seldom.
const DETAILS_MS = 30000;
const LONGEST_WINDOW_S = 60;
const STAGES = ["decode", "admit", "cache", "tier", "join", "batch", "infer", "encode"];
const DASH = "–";

const element = id => document.getElementById(id);

// State of the page. The token is stored only here.
const known = { token: "", history: [], index: [], readyIndex: "", details: new Map(), detailsAt: -Infinity, silentSince: null };

function setText(node, text) {
  // Unchanged text is not set again, so that a selection stays and a screen reader does not repeat it.
  if (node.textContent !== text) node.textContent = text;
}

function say(id, text) {
  setText(element(id), text);
}

// ---- Polling ----------------------------------------------------------------------------------------------------------

class Refused extends Error {
  constructor(path, status) {
    super(`${path}: ${status}`);
    this.path = path;
    this.status = status;
  }
}

async function ask(path, options = {}) {
  const headers = known.token ? { Authorization: `Bearer ${known.token}` } : {};
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const reply = await fetch(path, { headers, signal, cache: "no-store", redirect: "error", ...options });
  return { status: reply.status, ok: reply.ok, text: await reply.text() };
}

async function askFor(path, options) {
  const reply = await ask(path, options);
  if (!reply.ok) throw new Refused(`/${path}`, reply.status);
  return reply.text;
}

const askIndex = async options => JSON.parse(await askFor("v2/repository/index", { method: "POST", body: JSON.stringify(options) }));

// Gets the served models, which is cheap; seldom, or when they change, the rest too.
async function askModels() {
  const ready = await askIndex({ ready: true });
  const readyIndex = JSON.stringify(ready);
  const now = performance.now();
  if (readyIndex === known.readyIndex && now - known.detailsAt < DETAILS_MS) return;
  const index = await askIndex({});
  const details = new Map();
  for (const name of new Set(ready.map(entry => entry.name))) {
    const reply = await ask(`v2/models/${encodeURIComponent(name)}`);
    // A model unloaded meanwhile has none.
    if (reply.ok) details.set(name, JSON.parse(reply.text));
  }
  Object.assign(known, { index, details, readyIndex, detailsAt: now });
}

async function poll() {
  // Readiness needs no token.
  const health = await ask("v2/health/ready");
  const reading = readMetrics(await askFor("metrics"), performance.now());
  await askModels();
  remember(reading);
  const loaded = levels(reading, "tierlab_build_info").length > 0;
  if (health.ok) return ["good", "Ready"];
  return ["warn", loaded ? "Not ready: it is shutting down" : "Not ready: models are being loaded"];
}

// Keeps the readings of the longest window. Readings from before a restart of the server are dropped.
function remember(reading) {
  const last = known.history[known.history.length - 1];
  if (last && level(reading, "tierlab_uptime_seconds") < level(last, "tierlab_uptime_seconds")) {
    known.history = [];
    known.detailsAt = -Infinity;
  }
  known.history.push(reading);
  const oldest = reading.at - 1000 * LONGEST_WINDOW_S - POLL_MS;
  known.history = known.history.filter(({ at }) => at >= oldest);
}

function clock(date) {
  return date.toLocaleTimeString([], { hour12: false });
}

async function look() {
  const asked = known.token;
  let state;
  try {
    state = await poll();
    known.silentSince = null;
    showAccess(null);
  } catch (error) {
    // A token entered meanwhile has not been tried yet.
    if (asked !== known.token) return;
    state = failed(error);
  }
  element("state").className = `state ${state[0]}`;
  say("state", state[1]);
  document.body.classList.toggle("stale", state[0] === "bad");
  document.title = state[0] === "bad" ? "Tierlab: no answer" : "Tierlab";
  show();
}

// Converts a failure to a class and a message.
function failed(error) {
  if (error instanceof Refused) {
    known.silentSince = null;
    if (error.status === 401) {
      // A refused token is forgotten; its message stays until another one is tried.
      if (known.token) showAccess("The server rejected this token.");
      else if (element("access").hidden) showAccess("This server requires a token.");
      return ["warn", "Token required"];
    }
    return ["bad", `Request refused: ${error.status} on ${error.path}`];
  }
  if (error instanceof SyntaxError) return ["bad", "Invalid reply: not a Tierlab server"];
  known.silentSince ??= new Date();
  const before = known.history.length ? "; showing the last figures" : "";
  return ["bad", `No answer from the server since ${clock(known.silentSince)}${before}`];
}

// A poll starts 2 s after the last one ended, so there is one at a time; none while the page is hidden.
let timer;
let looking = false;
let wanted = false;

async function lookAgain() {
  clearTimeout(timer);
  if (document.hidden) return;
  if (looking) {
    wanted = true;
    return;
  }
  looking = true;
  await look();
  looking = false;
  timer = setTimeout(lookAgain, wanted ? 0 : POLL_MS);
  wanted = false;
}

// ---- The token --------------------------------------------------------------------------------------------------------

function showAccess(why) {
  const form = element("access");
  if (why) say("access-why", why);
  if (form.hidden !== !why) form.hidden = !why;
  if (why) forget();
  element("links-note").hidden = !why && !known.token;
}

// Figures read with one token are not shown to the next user.
function forget() {
  Object.assign(known, { token: "", history: [], index: [], readyIndex: "", details: new Map(), detailsAt: -Infinity });
}

function useToken(event) {
  event.preventDefault();
  const token = element("token").value.trim();
  element("token").value = "";
  // A token must be valid in a header.
  if (!/^[\x21-\x7e]+$/.test(token)) {
    say("access-why", "Invalid token: use one word of visible ASCII characters.");
    return;
  }
  known.token = token;
  lookAgain();
}

// ---- Showing ----------------------------------------------------------------------------------------------------------

// The readings at both ends of the chosen window; none before there are two.
function ends() {
  const to = known.history[known.history.length - 1];
  if (!to) return null;
  const begin = to.at - 1000 * Number(element("window").value) - POLL_MS / 2;
  const from = known.history.find(({ at }) => at >= begin);
  return from === to ? null : { from, to, seconds: (to.at - from.at) / 1000 };
}

function show() {
  const last = known.history[known.history.length - 1];
  element("figures").hidden = !last;
  say("index", known.index.length ? JSON.stringify(known.index, null, 2) : "Empty, or not loaded yet.");
  if (!last) {
    say("build", "");
    return;
  }
  const span = ends();
  showBuild(last);
  showRequests(last, span);
  showStages(span);
  showModels(span);
  showStorage(last, span);
}

function build(reading) {
  const [info] = levels(reading, "tierlab_build_info");
  const names = TAKEN.get("tierlab_build_info");
  return info ? Object.fromEntries(names.map((name, at) => [name, info.labels[at]])) : null;
}

function showBuild(last) {
  const info = build(last);
  const up = `up ${showAge(level(last, "tierlab_uptime_seconds"))}`;
  const parts = info ? [`version ${info.version}`, `ONNX Runtime ${info.onnxruntime}`, info.providers, info.variant && `variant ${info.variant}`, up] : [up];
  say("build", parts.filter(Boolean).join(", "));
}

function tell(name, { text, note = "" }) {
  say(name, text);
  say(`${name}-note`, note);
}

function shownPercentile({ total, needed, seconds, beyond }) {
  if (seconds !== undefined) return { text: (beyond ? "> " : "") + showTime(seconds), note: `of ${digits(total)} requests` };
  return total === 0 ? { text: DASH } : { text: "n/a", note: `${digits(total)} of ${needed} required requests` };
}

function showRequests(last, span) {
  const limit = level(last, "tierlab_in_flight_limit_requests");
  tell("in-flight", { text: digits(level(last, "tierlab_in_flight_requests")), note: `requests (limit: ${limit})` });
  if (!span) {
    say("traffic", "Figures appear in 2 s.");
    for (const name of ["rate", "p50", "p95", "p99", "errors"]) tell(name, { text: DASH });
    return;
  }
  const { from, to, seconds } = span;
  const requests = growth(from, to, "tierlab_requests_total");
  const answered = sum(requests);
  const cancelled = sum(growth(from, to, "tierlab_cancelled_total"));
  const bad = sum(requests, ([, code]) => code !== "200") + cancelled;
  const window = `${digits(seconds)} s`;
  say("traffic", answered + cancelled ? `Counted over ${window}.` : `No requests in the last ${window}.`);
  tell("rate", { text: showRate(answered / seconds), note: `${showRate(sum(growth(from, to, "tierlab_inferences_total")) / seconds)} rows inferred` });
  const latency = buckets(growth(from, to, "tierlab_request_duration_seconds_bucket"));
  for (const percent of [50, 95, 99]) tell(`p${percent}`, shownPercentile(percentile(latency, percent / 100)));
  tell("errors", { text: showRate(bad / seconds), note: cancelled ? `${digits(cancelled)} clients went away` : "refused, failed or abandoned" });
}

function showStages(span) {
  const grown = span ? growth(span.from, span.to, "tierlab_stage_duration_seconds_sum") : [];
  const times = STAGES.map(stage => sum(grown, ([name]) => name === stage));
  const total = times.reduce((all, time) => all + time, 0);
  const count = span ? buckets(growth(span.from, span.to, "tierlab_request_duration_seconds_bucket")).pop()?.[1] ?? 0 : 0;
  element("bar").hidden = !total;
  element("stages").hidden = !total;
  if (!total || !count) {
    say("stages-note", "No requests in the window.");
    return;
  }
  say("stages-note", `Shares of the server's time of ${digits(count)} requests, and the mean time of each; total: ${showTime(total / count)}.`);
  STAGES.forEach((stage, at) => {
    const share = times[at] / total;
    // Set one by one, because the page's policy forbids style attributes.
    element("bar").children[at].style.flexGrow = share;
    const [, , shown, mean] = element("stages").children[at].children;
    setText(shown, showShare(share));
    setText(mean, showTime(times[at] / count));
  });
}

function makeStages() {
  for (const stage of STAGES) {
    const part = document.createElement("span");
    part.className = `of-${stage}`;
    part.style.flexBasis = "0";
    element("bar").append(part);
    const line = document.createElement("li");
    for (const [className, text] of [[`swatch of-${stage}`, ""], ["", stage], ["", ""], ["quiet", ""]]) {
      const cell = document.createElement("span");
      cell.className = className;
      cell.textContent = text;
      line.append(cell);
    }
    element("stages").append(line);
  }
}

// Sets the texts of a table's rows. Rows are reused, so that a selection survives the next poll.
function fill(id, rows) {
  const body = element(id);
  const columns = [...body.parentNode.tHead.rows[0].cells].map(cell => cell.textContent);
  while (body.rows.length > rows.length) body.deleteRow(-1);
  while (body.rows.length < rows.length) {
    const row = body.insertRow();
    row.setAttribute("role", "row");
    for (const column of columns) {
      const cell = row.insertCell();
      cell.setAttribute("role", "cell");
      cell.dataset.column = column;
      cell.append(document.createElement("span"));
    }
  }
  rows.forEach((texts, at) => texts.forEach((text, column) => {
    const cell = body.rows[at].cells[column];
    cell.classList.toggle("none", text === DASH);
    setText(cell.firstChild, text);
  }));
  body.parentNode.hidden = rows.length === 0;
}

// The versions of a model, grouped by state, with the reason why one is not served.
function shownVersions(entries) {
  return entries.map(({ version, state, reason }) => {
    const where = (state || "not loaded").toLowerCase();
    return [version, where, reason && `(${reason})`].filter(Boolean).join(" ");
  }).join("; ");
}

function showModels(span) {
  const names = [...new Set(known.index.map(entry => entry.name))];
  const ready = names.filter(name => known.details.has(name)).length;
  say("models-note", names.length ? `${ready} of ${names.length} served.` : "No models are loaded yet.");
  const grown = span ? growth(span.from, span.to, "tierlab_request_duration_seconds_bucket") : [];
  const requests = span ? growth(span.from, span.to, "tierlab_requests_total") : [];
  const last = known.history[known.history.length - 1];
  const info = build(last);
  fill("models", names.map(name => {
    const details = known.details.get(name);
    const latency = buckets(grown, name);
    const percentiles = [0.5, 0.95, 0.99].map(quantile => shownPercentile(percentile(latency, quantile)).text);
    const rate = span && details ? showRate(sum(requests, ([model]) => model === name) / span.seconds) : DASH;
    return [name, shownVersions(known.index.filter(entry => entry.name === name)), rowsOf(details), tierOf(details, info), rate, ...percentiles];
  }));
}

function rowsOf(details) {
  if (!details) return DASH;
  return details.batched ? `batched, up to ${details.max_batch_size}` : "not batched";
}

function tierOf(details, info) {
  if (!details || !info) return DASH;
  return details.joined ? `${info.model_tier}, its rows from ${info.feature_tier}` : info.model_tier;
}

function showStorage(last, span) {
  const of = (name, role, tier) => {
    if (!span) return null;
    return sum(growth(span.from, span.to, name), labels => labels[0] === role && labels[1] === tier) / span.seconds;
  };
  const roles = { model: "model files", feature: "feature rows" };
  fill("tiers", levels(last, "tierlab_tier_requests_total").map(({ labels: [role, tier] }) => {
    const requests = of("tierlab_tier_requests_total", role, tier);
    const bytes = of("tierlab_tier_wire_bytes_total", role, tier);
    return [roles[role] ?? role, tier, requests === null ? DASH : showRate(requests), bytes === null ? DASH : `${showBytes(bytes)}/s`];
  }));
  const info = build(last);
  say("location", info ? [`Feature rows are at ${info.feature_location}`, info.feature_notes].filter(Boolean).join("; ") : "");
  const caches = [...cachesOf("memory", "cache", last, span), ...cachesOf("local disk", "staged", last, span)];
  fill("caches", caches);
  say("caches-note", caches.length ? "Model files are never cached in memory: they are read when a model is loaded." : "No cache or stage: each row is read from its tier.");
}

// A line for each tier with a cache (or a stage).
function cachesOf(where, kind, last, span) {
  return levels(last, `tierlab_${kind}_capacity_bytes`).filter(({ value }) => value > 0).map(({ labels: [tier], value: capacity }) => {
    const counted = name => span ? sum(growth(span.from, span.to, `tierlab_${kind}_${name}_total`), ([of]) => of === tier) : 0;
    const [hits, misses] = [counted("hits"), counted("misses")];
    const [held] = levels(last, `tierlab_${kind}_bytes`).filter(({ labels: [of] }) => of === tier);
    const filled = `${showBytes(held?.value ?? 0)} of ${showBytes(capacity)}`;
    if (!span || hits + misses === 0) return [where, tier, DASH, span ? "none" : DASH, filled];
    return [where, tier, showShare(hits / (hits + misses)), `${showRate((hits + misses) / span.seconds)} of blocks`, filled];
  });
}

makeStages();
element("access").addEventListener("submit", useToken);
element("window").addEventListener("change", show);
document.addEventListener("visibilitychange", lookAgain);
lookAgain();

"use strict";
// The page: asks the server every 2 s while somebody can see it, and shows what it says.
// Everything that is shown is put in as text: the name of a model is another person's text, and never markup.

const POLL_MS = 2000;
const TIMEOUT_MS = 5000;
// The full index may make the server list its tier, and what a model is changes seldom.
const DETAILS_MS = 30000;
const LONGEST_WINDOW_S = 60;
const STAGES = ["decode", "admit", "cache", "tier", "join", "batch", "infer", "encode"];
const DASH = "–";

const element = id => document.getElementById(id);

// What is known. The token is here and nowhere else.
const known = { token: "", history: [], index: [], readyIndex: "", details: new Map(), detailsAt: -Infinity, silentSince: null };

function setText(node, text) {
  // Left alone where nothing changed: a selection stays, and a screen reader is not told twice.
  if (node.textContent !== text) node.textContent = text;
}

function say(id, text) {
  setText(element(id), text);
}

// ---- Asking -----------------------------------------------------------------------------------------------------------

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

// The models that are served, which costs the server nothing to say; and seldom, or when those change, all the rest.
async function askModels() {
  const ready = await askIndex({ ready: true });
  const readyIndex = JSON.stringify(ready);
  const now = performance.now();
  if (readyIndex === known.readyIndex && now - known.detailsAt < DETAILS_MS) return;
  const index = await askIndex({});
  const details = new Map();
  for (const name of new Set(ready.map(entry => entry.name))) {
    const reply = await ask(`v2/models/${encodeURIComponent(name)}`);
    // One that was unloaded meanwhile has none.
    if (reply.ok) details.set(name, JSON.parse(reply.text));
  }
  Object.assign(known, { index, details, readyIndex, detailsAt: now });
}

async function poll() {
  // Whether requests are taken is told to everybody, also without a token.
  const health = await ask("v2/health/ready");
  const reading = readMetrics(await askFor("metrics"), performance.now());
  await askModels();
  remember(reading);
  const loaded = levels(reading, "tierlab_build_info").length > 0;
  if (health.ok) return ["good", "Ready"];
  return ["warn", loaded ? "Not ready: it is shutting down" : "Not ready: models are being loaded"];
}

// Keeps the readings of the longest window. Those of a process that has been started again tell nothing of this one.
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
    // A token that came meanwhile has not been tried yet.
    if (asked !== known.token) return;
    state = failed(error);
  }
  element("state").className = `state ${state[0]}`;
  say("state", state[1]);
  document.body.classList.toggle("stale", state[0] === "bad");
  document.title = state[0] === "bad" ? "Tierlab: no answer" : "Tierlab";
  show();
}

// What a failure means, as a class and a sentence.
function failed(error) {
  if (error instanceof Refused) {
    known.silentSince = null;
    if (error.status === 401) {
      // A token that was refused is forgotten: what was said of it stays until another one is tried.
      if (known.token) showAccess("The server does not know this token.");
      else if (element("access").hidden) showAccess("This server asks for a token.");
      return ["warn", "It answers, and asks for a token"];
    }
    return ["bad", `It refuses to tell: ${error.status} on ${error.path}`];
  }
  if (error instanceof SyntaxError) return ["bad", "What answers is not this server"];
  known.silentSince ??= new Date();
  const before = known.history.length ? "; below is what it said before" : "";
  return ["bad", `The server does not answer since ${clock(known.silentSince)}${before}`];
}

// A look begins 2 s after the last one has ended, so there is one at a time; none while nobody sees the page.
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

// What was told to the one who had a token is not shown to the next.
function forget() {
  Object.assign(known, { token: "", history: [], index: [], readyIndex: "", details: new Map(), detailsAt: -Infinity });
}

function useToken(event) {
  event.preventDefault();
  const token = element("token").value.trim();
  element("token").value = "";
  // What no header carries is no token.
  if (!/^[\x21-\x7e]+$/.test(token)) {
    say("access-why", "A token is one word of visible ASCII characters.");
    return;
  }
  known.token = token;
  lookAgain();
}

// ---- Showing ----------------------------------------------------------------------------------------------------------

// The readings at both ends of the window that was chosen; none before there are two.
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
  say("index", known.index.length ? JSON.stringify(known.index, null, 2) : "Nothing is in it, or it was not told yet.");
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
  return total === 0 ? { text: DASH } : { text: "n/a", note: `${digits(total)} of ${needed} requests that it takes` };
}

function showRequests(last, span) {
  const limit = level(last, "tierlab_in_flight_limit_requests");
  tell("in-flight", { text: digits(level(last, "tierlab_in_flight_requests")), note: `requests, of ${limit} at most` });
  if (!span) {
    say("traffic", "Figures come with the second look, in 2 s.");
    for (const name of ["rate", "p50", "p95", "p99", "errors"]) tell(name, { text: DASH });
    return;
  }
  const { from, to, seconds } = span;
  const requests = growth(from, to, "tierlab_requests_total");
  const answered = sum(requests);
  const cancelled = sum(growth(from, to, "tierlab_cancelled_total"));
  const bad = sum(requests, ([, code]) => code !== "200") + cancelled;
  const window = `${digits(seconds)} s`;
  say("traffic", answered + cancelled ? `Counted over ${window}.` : `No requests were seen in the last ${window}.`);
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
    say("stages-note", "No requests were seen that took any time.");
    return;
  }
  say("stages-note", `Shares of the server's time of ${digits(count)} requests, and the mean time of each: ${showTime(total / count)} altogether.`);
  STAGES.forEach((stage, at) => {
    const share = times[at] / total;
    // Set one by one: the policy of the page lets no attribute bring style.
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

// Makes the rows of a table say these texts. Rows stay where they are, so that a selection outlives the next look.
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

// The versions of a model: those of one state together, and why one is not served.
function shownVersions(entries) {
  return entries.map(({ version, state, reason }) => {
    const where = (state || "not loaded").toLowerCase();
    return [version, where, reason && `(${reason})`].filter(Boolean).join(" ");
  }).join("; ");
}

function showModels(span) {
  const names = [...new Set(known.index.map(entry => entry.name))];
  const ready = names.filter(name => known.details.has(name)).length;
  say("models-note", names.length ? `${ready} of ${names.length} served.` : "None is loaded yet.");
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
  say("location", info ? [`Feature rows lie at ${info.feature_location}`, info.feature_notes].filter(Boolean).join("; ") : "");
  const caches = [...cachesOf("memory", "cache", last, span), ...cachesOf("local disk", "staged", last, span)];
  fill("caches", caches);
  say("caches-note", caches.length ? "Model files are never cached in memory: they are read when a model is loaded." : "No cache and no stage is used: each row is read from its tier.");
}

// A line for each tier that a cache (or a stage) stands before.
function cachesOf(where, kind, last, span) {
  return levels(last, `tierlab_${kind}_capacity_bytes`).filter(({ value }) => value > 0).map(({ labels: [tier], value: capacity }) => {
    const counted = name => span ? sum(growth(span.from, span.to, `tierlab_${kind}_${name}_total`), ([of]) => of === tier) : 0;
    const [hits, misses] = [counted("hits"), counted("misses")];
    const [held] = levels(last, `tierlab_${kind}_bytes`).filter(({ labels: [of] }) => of === tier);
    const filled = `${showBytes(held?.value ?? 0)} of ${showBytes(capacity)}`;
    if (!span || hits + misses === 0) return [where, tier, DASH, span ? "none were seen" : DASH, filled];
    return [where, tier, showShare(hits / (hits + misses)), `${showRate((hits + misses) / span.seconds)} of blocks`, filled];
  });
}

makeStages();
element("access").addEventListener("submit", useToken);
element("window").addEventListener("change", show);
document.addEventListener("visibilitychange", lookAgain);
lookAgain();

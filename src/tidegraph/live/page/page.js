"use strict";
// The live page. It asks this server only, and puts everything it shows in by textContent.

const $ = (id) => document.getElementById(id);
const SECONDS = { ns: 1e-9, us: 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, day: 86400 };
const WORDS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
const KEPT = 60;    // events in the list
const SPAN = 120;   // seconds of the plot of events per second
const still = matchMedia("(prefers-reduced-motion: reduce)");
let unit = null;   // of times; the first figures name it
let token = sessionStorage.getItem("token");
let shown = null;   // the node that is looked at

// Small helpers ------------------------------------------------------------------------------------

function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "text", "circle", "g", "rect"].includes(tag);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.filter((each) => each !== null));
  return made;
}

const count = (value) => Number(value).toLocaleString("en");
const digits = (value) => value === 0 ? "0" : Math.abs(value) >= 100 ? count(Math.round(value))
  : String(Number(Number(value).toPrecision(2)));
const percent = (value) => value >= 0.9995 ? "100 %" : value >= 0.1 ? `${Math.round(value * 100)} %`
  : value >= 0.001 ? `${(value * 100).toFixed(1)} %` : "< 0.1 %";
const plural = (value, word) => `${count(value)} ${word}${value === 1 ? "" : "s"}`;

function bytes(value) {
  for (const [name, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]])
    if (value >= size) return `${(value / size).toFixed(value >= 10 * size ? 0 : 1)} ${name}`;
  return `${value} B`;
}

// Times are numbers in the server's unit; those between 1990 and 2100 are dates.
function dated(t) {
  const seconds = t * (SECONDS[unit] || 0);
  return seconds > 631152000 && seconds < 4102444800 ? new Date(seconds * 1000) : null;
}

function moment(t) {
  if (t === null || t === undefined) return "–";
  const date = dated(t);
  if (!date) return `${count(t)} ${unit === "step" ? "" : unit}`.trim();
  const text = date.toISOString();
  return `${text.slice(0, 10)} ${text.slice(11, 19)}`;
}

function spanned(duration) {
  const seconds = duration * (SECONDS[unit] || 0);
  if (!SECONDS[unit]) return count(duration);
  for (const [word, size] of WORDS)
    if (Math.abs(seconds) >= size) return `${digits(seconds / size)} ${word}`;
  return seconds === 0 ? "0 s" : `${digits(seconds * 1000)} ms`;
}

function named(name) {
  const button = make("button", { type: "button", class: "link" }, name);
  button.addEventListener("click", () => lookUp(name, true));
  return button;
}

// Asking -------------------------------------------------------------------------------------------

class Problem extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

async function ask(path, body, stream = false) {
  const headers = {};
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, body === undefined ? { headers }
      : { method: "POST", headers, body: JSON.stringify(body) });
  } catch { throw new Problem(0, "the server does not answer"); }
  if (answer.ok) return stream ? answer : answer.json();
  const found = await answer.json().catch(() => ({ error: { message: answer.statusText } }));
  if (answer.status === 401) $("token-form").hidden = false;
  throw new Problem(answer.status, found.error.message);
}

const of = (node, verb, query = "") =>
  ask(`/v1/${verb}?node=${encodeURIComponent(node)}${query}`);

function note(where, error) {
  where.textContent = error ? error.message : "";
  where.hidden = !error;
}

$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value;
  sessionStorage.setItem("token", token);
  $("token").value = "";
  $("token-form").hidden = true;
  refresh().then(refreshQuality);
});

// What is there now --------------------------------------------------------------------------------

const rates = [];   // [seconds, events applied]

function showRate(stats) {
  const now = performance.now() / 1000;
  rates.push([now, stats.applied + (stats.rejected || 0)]);
  while (rates.length > 2 && rates[0][0] < now - SPAN) rates.shift();
  const per = [];
  for (let k = 1; k < rates.length; k++)
    per.push([rates[k][0], (rates[k][1] - rates[k - 1][1]) / (rates[k][0] - rates[k - 1][0])]);
  const lately = per.slice(-5);
  const rate = lately.length ? lately.reduce((sum, each) => sum + each[1], 0) / lately.length : 0;
  $("rate").textContent = digits(rate);
  $("rate-note").textContent = `${plural(stats.events, "event")}, ${plural(stats.nodes, "node")}, `
    + plural(stats.edges, "edge");
  if (per.length < 2) return;
  const most = Math.max(1, ...per.map((each) => each[1]));
  const span = Math.max(20, now - per[0][0]);
  const points = per.map(([at, value]) =>
    `${(300 - (now - at) / span * 300).toFixed(1)} ${(96 - value / most * 80).toFixed(1)}`);
  const first = points[0].split(" ")[0];
  $("rate-plot").replaceChildren(make("svg",
    { viewBox: "0 0 300 100", preserveAspectRatio: "none", class: "c0", "aria-hidden": "true" },
    make("path", { class: "area", d: `M${first} 100 L${points.join(" L")} L300 100 Z` }),
    make("path", { class: "curve", d: `M${points.join(" L")}` })));
}

function showStats(stats) {
  unit = stats.unit;
  $("light").className = "on";
  $("state-text").textContent = `as of event ${count(stats.applied_seq)}`;
  showRate(stats);
  const [day, clock] = moment(stats.watermark).split(" ");
  $("watermark").replaceChildren(day, clock ? make("small", {}, clock) : "");
  $("watermark-note").textContent = stats.watermark === null ? "no events yet"
    : `${spanned(Math.max(0, stats.newest - stats.watermark))} behind the newest event; `
      + (stats.held_back ? `${plural(stats.held_back, "event")} wait` : "none wait");
  $("late").textContent = count(stats.late);
  $("late-note").textContent = `beyond ${spanned(stats.lateness)}; `
    + plural(stats.duplicates, "duplicate");
  $("error").textContent = stats.certified_error === null ? "–" : digits(stats.certified_error);
  $("memory").textContent = bytes(stats.memory_bytes);
  $("disk-note").textContent = `and ${bytes(stats.disk_bytes)} on disk`;
  const beside = (stats.beside || []).map((each) => each.problem).filter(Boolean);
  const problems = [...beside, ...(stats.notes || []).slice(-1)];
  note($("problem"), problems.length ? { message: problems.join("; ") } : null);
}

async function refresh() {
  try { showStats(await ask("/v1/stats")); }
  catch (error) {
    $("light").className = "off";
    $("state-text").textContent = error.status === 401 ? "a token is needed" : error.message;
  }
}

// A node -------------------------------------------------------------------------------------------

async function lookUp(name, asked = false) {
  $("name").value = name;
  try {
    const [who, top, similar] = await Promise.all(
      [of(name, "nodes"), of(name, "top", "&k=8"), of(name, "similar", "&k=8")]);
    shown = name;
    showNode(who, top, similar);
    note($("look-problem"), null);
    if (asked && $("node").getBoundingClientRect().top > innerHeight * 0.8)
      $("look-title").scrollIntoView({ behavior: still.matches ? "instant" : "smooth" });
  } catch (error) {
    note($("look-problem"), error);
    if (asked) { $("node").hidden = true; shown = null; }
    return;
  }
  if (asked) $("moved").replaceChildren(make("p", { class: "small soft" }, "reading its record …"));
  try {
    const { data } = await of(name, "history", "&points=200");
    if (shown === name) showMoved(data);
  } catch (error) { $("moved").replaceChildren(make("p", { class: "small soft" }, error.message)); }
}

function showNode(who, top, similar) {
  const data = who.data;
  $("node").hidden = false;
  $("node-name").textContent = data.name;
  const seen = data.last === null ? "never seen" : `last seen ${moment(data.last)}`;
  $("node-facts").textContent = `${plural(data.events_as_src, "event")} from it, `
    + `${count(data.events_as_dst)} to it · ${plural(data.degree, "edge")} · ${seen}`;
  $("version").textContent = top.version === "heuristics" ? "by recency and popularity"
    : `by model ${top.version}`;
  const acted = data.events_as_src > 0;
  bars($("top"), acted ? top.data.names : [], top.data.probability, "c0", data.name,
    acted ? "nobody yet" : "It never acted itself, it was only met.");
  bars($("similar"), similar.data.names, similar.data.similarity, "c2", null);
  const met = new Map();   // whom it met last, each once
  for (const each of data.partners) if (!met.has(each.name)) met.set(each.name, each);
  $("partners").replaceChildren(...[...met.values()].slice(0, 12).map((each) => {
    const button = named(each.name);
    button.append(make("small", {}, moment(each.t)));
    return button;
  }));
}

function bars(list, names, values, colour, src, none = "nobody yet") {
  const open = list.querySelector("[data-open]");
  const explained = open && open.dataset.open;
  list.replaceChildren(...names.map((name, k) => {
    const fill = make("i");
    fill.style.width = `${Math.max(0, Math.min(1, values[k])) * 100}%`;
    const value = src === null ? values[k].toFixed(2) : percent(values[k]);
    const line = make("div", { class: src === null ? "line" : "line why" }, named(name),
      make("span", { class: `bar ${colour}` }, fill), make("b", {}, value));
    const item = make("li", {}, line);
    if (src !== null) {
      const why = make("button", { type: "button", class: "ask", "aria-label": `Why ${name}?` },
        "why?");
      why.addEventListener("click", () => explain(item, src, name));
      line.append(why);
      if (explained === name) explain(item, src, name);
    }
    return item;
  }));
  if (!names.length) list.append(make("li", { class: "soft small" }, none));
}

async function explain(item, src, dst) {
  const old = item.querySelector(".reasons");
  if (old) { old.remove(); delete item.dataset.open; return; }
  const box = make("div", { class: "reasons" });
  item.dataset.open = dst;
  item.append(box);
  try {
    const { data } = await ask("/v1/explain", { src, dst });
    const facts = data.facts;
    const met = facts.meetings ? `They met ${plural(facts.meetings, "time")}`
      + (facts.last_met === null ? "" : `, last on ${moment(facts.last_met)}`) : "They never met";
    box.append(make("p", {}, `${met}. ${src} acted ${plural(facts.source_events, "time")}; `
      + `${dst} was met ${plural(facts.destination_events, "time")}; `
      + `weight of neighbours in common: ${digits(facts.in_common)}.`));
    if (data.reasons.length) box.append(make("ul", {}, ...data.reasons.slice(0, 5).map((each) =>
      make("li", {}, each.reason, make("b", { class: each.drive >= 0 ? "good" : "bad" },
        `${each.drive >= 0 ? "+" : "−"}${Math.abs(each.drive).toFixed(2)}`)))));
  } catch (error) { box.textContent = error.message; }
}

$("look").addEventListener("submit", (event) => {
  event.preventDefault();
  lookUp($("name").value, true);
});

// Plots --------------------------------------------------------------------------------------------

function plot(place, series, { low = 0, high = 1, label = digits, first, last, height = 170 }) {
  const width = Math.max(280, place.clientWidth || 600), left = 44, bottom = 22, top = 8;
  const span = last - first || 1;
  const x = (t) => left + (t - first) / span * (width - left - 8);
  const y = (v) => top + (high - v) / (high - low || 1) * (height - top - bottom);
  const picture = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  for (let k = 0; k <= 2; k++) {
    const value = low + (high - low) * k / 2;
    picture.append(
      make("line", { class: "grid", x1: left, x2: width - 8, y1: y(value), y2: y(value) }),
      make("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, label(value)));
  }
  const ends = [moment(first), moment(last)].map((text) =>
    width < 420 && dated(first) && last - first > 172800 / (SECONDS[unit] || 1) ? text.slice(0, 10) : text);
  picture.append(make("text", { x: left, y: height - 4 }, ends[0]),
    make("text", { x: width - 8, y: height - 4, "text-anchor": "end" }, ends[1]));
  for (const { colour, points } of series) {
    const path = points.map(([t, v]) => `${x(t).toFixed(1)} ${y(v).toFixed(1)}`).join(" L");
    if (points.length > 1) picture.append(make("path", { class: `curve ${colour}`, d: `M${path}` }));
    if (points.length < 30) for (const [t, v] of points)
      picture.append(make("circle", { class: `mark ${colour}`, cx: x(t), cy: y(v), r: 2.6 }));
  }
  place.replaceChildren(make("ul", { class: "legend" }, ...series.map(({ colour, name }) =>
    make("li", { class: colour }, make("span", {}, name)))), picture);
}

function showMoved({ times, moved, similarity }) {
  const place = $("moved");
  if (times.length < 2) {
    place.replaceChildren(make("p", { class: "small soft" }, "It has not moved twice yet."));
    return;
  }
  const ends = { first: times[0], last: times[times.length - 1], height: 130 };
  // The first changes, from nowhere, would hide all others.
  const usual = moved.length > 20 ? moved.slice(Math.ceil(moved.length / 20)) : moved;
  const most = Math.max(...usual) || 1;
  const low = Math.floor(Math.min(...similarity) * 10) / 10;
  const [alike, steps] = [make("div"), make("div")];
  place.replaceChildren(make("div", { class: "split" }, alike, steps));
  plot(alike, [{ name: "how alike it was to what it is now", colour: "c0",
    points: times.map((t, k) => [t, similarity[k]]) }], { low, high: 1, ...ends });
  plot(steps, [{ name: "how far each change took it", colour: "c1",
    points: times.map((t, k) => [t, Math.min(moved[k], most)]) }], { low: 0, high: most, ...ends });
}

function showQuality({ buckets = [], share }) {
  const place = $("quality");
  const rows = buckets.map(({ time, judged, model, heuristics }) => {
    const all = { ...heuristics, ...(model ? { model } : {}) };
    return { t: time, judged, ap: Object.fromEntries(
      Object.entries(all).filter(([, each]) => each).map(([name, each]) => [name, each.ap])) };
  });
  const known = rows.filter((each) => each.judged && Object.keys(each.ap).length);
  if (!known.length) {
    place.replaceChildren(make("p", { class: "soft small" },
      "Every event is predicted before it is learned from. The curve begins with the first ones."));
    return;
  }
  const names = [...new Set(known.flatMap((each) => Object.keys(each.ap)))];
  names.sort((a, b) => (b === "model") - (a === "model"));
  plot(place, names.map((name, k) => ({
    name: name.replaceAll("-", " "), colour: `c${Math.min(k, 6)}`,
    points: known.filter((each) => Number.isFinite(each.ap[name])).map((each) => [each.t, each.ap[name]]),
  })), { low: 0, high: 1, first: known[0].t, last: known[known.length - 1].t, height: 200 });
  const judged = known.reduce((sum, each) => sum + each.judged, 0);
  place.append(make("p", { class: "small soft" },
    `Average precision of true links against random ones, by time, ${plural(judged, "event")} judged`
    + (share === undefined || share >= 0.995 ? "" : `, ${percent(share)} of all`)
    + ". Each was predicted before it was learned from."));
}

async function refreshQuality() {
  try { showQuality(await ask("/v1/quality")); }
  catch { /* refresh shows what is wrong */ }
}

// What just happened -------------------------------------------------------------------------------

let place = 0;

function happened(event, fresh) {
  place = event.place;
  const about = event.dst === null ? [named(event.src)]
    : [named(event.src), make("span", { class: "arrow" }, "→"), named(event.dst)];
  const op = { add: "", remove: "removed", set: "set", remove_node: "left", features: "changed" };
  const item = make("li", fresh ? { class: "new" } : {}, make("span", {}, ...about,
    op[event.op] ? make("em", {}, ` ${op[event.op]}`) : null), make("time", {}, moment(event.t)));
  if (event.rejected) item.append(make("span", { class: "why-not" }, event.rejected));
  const list = $("stream");
  list.prepend(item);
  while (list.children.length > KEPT) list.lastChild.remove();
  $("stream-empty").hidden = true;
  if (shown !== null && (event.src === shown || event.dst === shown)) moved();
}

let due = null;   // the node that is looked at is asked about again, but not at every event
function moved() {
  due ??= setTimeout(() => { due = null; if (shown !== null) lookUp(shown); }, 4000);
}

function suggest() {
  if (shown !== null || $("name").value) return;
  const names = [...document.querySelectorAll("#stream .link")].map((each) => each.textContent);
  $("suggested").replaceChildren(...[...new Set(names)].slice(0, 6).map(named));
}

// Not an EventSource, which cannot send the token in a header.
async function follow() {
  if (unit === null) return void setTimeout(follow, 100);
  const begun = performance.now();
  try {
    const headers = place ? `?after=${place}` : "";
    const answer = await ask(`/v1/stream${headers}`, undefined, true);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ;) {
      const { value, done } = await reader.read();
      if (done) break;
      const messages = (rest + value).split("\n\n");
      rest = messages.pop();
      for (const message of messages) {
        const data = message.split("\n").find((line) => line.startsWith("data: "));
        if (data) happened(JSON.parse(data.slice(6)), performance.now() - begun > 1000);
      }
      suggest();
    }
  } catch { /* refresh shows what is wrong */ }
  setTimeout(follow, 1000);
}

$("send").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = event.submitter;
  const [src, dst] = [$("src").value, $("dst").value];
  button.disabled = true;
  $("sent").textContent = "…";
  try {
    const got = await ask("/v1/events?wait=applied", { src, dst });
    $("sent").className = "small good";
    $("sent").textContent = got.late && !got.accepted
      ? "Too late: newer events are there already." : `Stored and applied as event ${count(got.seq)}.`;
    refresh();
  } catch (error) {
    $("sent").className = "small bad";
    $("sent").textContent = error.message;
  }
  button.disabled = false;
});

refresh().then(refreshQuality);
follow();
setInterval(refresh, 1000);
setInterval(refreshQuality, 10000);

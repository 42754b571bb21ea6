// The page: it asks for the figures every two seconds, and shows those of one model.

import { html, render, useEffect, useRef, useState } from "./htm-preact.js";
import { KeyWanted, ask, hasKey, keepKey } from "./api.js";
import { counted, duration, number } from "./format.js";
import { extended, marksOf } from "./history.js";
import { Letters } from "./letters.js";
import { Map } from "./map.js";
import { Charts, Model, Nodes, Sentence, Tiles } from "./overview.js";
import { Slow } from "./slow.js";
import { Try } from "./tryit.js";

const POLL_MS = 2000;
const THEMES = { auto: "light dark", light: "light", dark: "dark" };

/** Figures of the frontend, asked for again and again while the page is visible. */
function useFigures(chosen, key) {
  const [state, setState] = useState({ points: [], decisions: [], of: null });
  const latest = useRef(state);
  latest.current = state;
  useEffect(() => {
    let timer;
    let ended = false;
    const look = async () => {
      clearTimeout(timer);
      if (!document.hidden) {
        const next = await looked(latest.current, chosen).catch((error) => ({
          ...latest.current,
          error: error instanceof KeyWanted ? null : error.message,
          wantsKey: error instanceof KeyWanted,
        }));
        if (ended) return;
        setState(next);
      }
      timer = setTimeout(look, POLL_MS);
    };
    const shown = () => !document.hidden && look();
    document.addEventListener("visibilitychange", shown);
    look();
    return () => {
      ended = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", shown);
    };
  }, [chosen, key]);
  return state;
}

/** The state after one more look. */
async function looked(state, chosen) {
  let name = chosen ?? state.of ?? "";
  const known = state.of === name ? state.points : [];
  const path = (model, since) => `dashboard/data?${new URLSearchParams({ model, since })}`;
  let found = await ask(path(name, known.at(-1)?.at_ms ?? 0));
  if (!name && found.jobs.length) {
    name = (found.jobs.find((job) => job.name === found.frontend.default) ?? found.jobs[0]).name;
    found = await ask(path(name, 0));
  }
  return { of: name, points: extended(known, found.history), ...found, error: null, wantsKey: false };
}

function useTheme() {
  const [theme, setTheme] = useState(localStorage.getItem("theme") ?? "auto");
  useEffect(() => {
    document.documentElement.style.colorScheme = THEMES[theme];
    localStorage.setItem("theme", theme);
  }, [theme]);
  return [theme, setTheme];
}

function KeyForm({ onKey }) {
  const keep = (event) => {
    event.preventDefault();
    keepKey(new FormData(event.target).get("key"));
    onKey();
  };
  return html`<form class="card key" onSubmit=${keep}>
    <h2>API key</h2>
    <p id="key-note">${hasKey() ? "The frontend does not know this key." : "This frontend answers callers with an API key."} The key stays in this tab.</p>
    <label for="key">Key</label>
    <input id="key" name="key" type="password" autocomplete="off" aria-describedby="key-note" required autofocus />
    <button>Show the dashboard</button>
  </form>`;
}

function Header({ state, chosen, onChoose, theme, onTheme }) {
  const { jobs = [], frontend, error } = state;
  const job = jobs.find((each) => each.name === chosen);
  return html`<header>
    <a class="skip" href="#main">Skip to the figures</a>
    <h1><img src="dashboard/static/icon.svg" alt="" width="22" height="22" />Cluster Serving</h1>
    ${jobs.length > 1
      ? html`<label class="unseen" for="job">Model</label>
        <select id="job" value=${chosen} onChange=${(event) => onChoose(event.target.value)}>
          ${jobs.map((each) => html`<option value=${each.name}>${each.name}</option>`)}
        </select>`
      : html`<span class="job">${chosen}</span>`}
    ${job && html`<span class="state ${job.ready ? "ready" : job.state}">${job.ready ? "ready" : job.state}</span>`}
    <span class="link ${error ? "lost" : ""}">${error ? "no answer" : frontend ? "live" : ""}</span>
    <label class="unseen" for="theme">Colours</label>
    <select id="theme" value=${theme} onChange=${(event) => onTheme(event.target.value)}>
      ${Object.keys(THEMES).map((name) => html`<option value=${name}>${name}</option>`)}
    </select>
  </header>`;
}

function Frontend({ release, processes, uptime_s: uptimeS, requests, in_flight: inFlight }) {
  const facts = [`frontend ${release}`, `${processes} ${processes === 1 ? "process" : "processes"}`, `up ${duration(uptimeS)}`];
  return [...facts, `${counted(requests, "request")}, ${number(inFlight)} in flight`].join(" · ");
}

function Trouble({ state }) {
  const unreachable = state.frontend?.unreachable ?? [];
  const troubles = [
    state.error && `The frontend does not answer (${state.error}). The figures below are its last.`,
    unreachable.length > 0 && `Redis at ${unreachable.join(", ")} cannot be reached.`,
  ];
  return troubles.filter(Boolean).map((text) => html`<p class="trouble" role="alert">${text}</p>`);
}

function App() {
  const [choice, setChoice] = useState(new URLSearchParams(location.search).get("model"));
  const [key, setKey] = useState(0);
  const [theme, setTheme] = useTheme();
  const state = useFigures(choice, key);
  const chosen = choice ?? state.of;
  const job = state.jobs?.find((each) => each.name === chosen);
  const choose = (name) => {
    history.replaceState(null, "", `?${new URLSearchParams({ model: name })}`);
    setChoice(name);
  };
  const kept = state.of === chosen ? state.points : [];
  const points = job?.now ? [...kept, { at_ms: state.frontend.now_ms, ...job.now }] : kept;
  const marks = marksOf(points, (state.of === chosen && state.decisions) || []);
  return html`<${Header} state=${state} chosen=${chosen} onChoose=${choose} theme=${theme} onTheme=${setTheme} />
    <main id="main" tabindex="-1">
      <${Trouble} state=${state} />
      ${state.wantsKey
        ? html`<${KeyForm} onKey=${() => setKey(key + 1)} />`
        : job
          ? html`<${Sentence} limit=${job.limit} />
            ${job.now && html`<${Tiles} job=${job} /><${Charts} points=${points} marks=${marks} theme=${theme} />`}
            <${Nodes} nodes=${job.nodes} />
            <${Map} nodes=${job.nodes} />
            ${job.now && html`<${Letters} key=${chosen} model=${chosen} count=${job.now.dead_letters} nowMs=${state.frontend.now_ms} />`}
            <${Slow} records=${state.of === chosen ? state.slow : []} />
            <${Try} key=${`${chosen} ${job.model.hash}`} name=${chosen} model=${job.model} />
            <${Model} model=${job.model} />`
          : html`<p class="card empty">${state.frontend ? `No node serves ${chosen || "a model"} now.` : "Loading …"}</p>
            ${points.length > 1 && html`<${Charts} points=${points} marks=${marks} theme=${theme} />`}`}
    </main>
    <footer>${state.frontend && html`<${Frontend} ...${state.frontend} /> · <a href="docs">routes</a> · <a href="metrics">metrics</a>`}</footer>`;
}

render(html`<${App} />`, document.body);

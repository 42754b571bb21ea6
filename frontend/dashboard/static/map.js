// Map of the nodes: sockets, their cores, and the processes on them, with who waits for whom.

import { html } from "./htm-preact.js";
import { counted, percent } from "./format.js";

const STEPS = { reader: "Reader", worker: "Workers", writer: "Writer" };
const FEW_NODES = 3;
// Back-pressure in the levels of Flink.
const LOW = 0.1;
const HIGH = 0.5;

/** The numbers in a list such as `0-3,8`. */
function numbers(list) {
  return list.split(",").filter(Boolean).flatMap((part) => {
    const [first, last = first] = part.split("-").map(Number);
    return Array.from({ length: last - first + 1 }, (_, index) => first + index);
  });
}

/** The processes that may run on each core, and the share of its time that they use. */
function byCore(processes) {
  const found = new globalThis.Map();
  for (const process of processes) {
    const cores = numbers(process.cores);
    for (const core of cores) {
      const at = found.get(core) ?? { names: [], used: 0 };
      at.names.push(process.name);
      at.used += process.cpu / cores.length;
      found.set(core, at);
    }
  }
  return found;
}

function Core({ number, at }) {
  const used = Math.min(1, at?.used ?? 0);
  const told = `core ${number}: ${at ? `${percent(used)} used by ${at.names.join(", ")}` : "no process of this node"}`;
  return html`<span class="core" role="img" aria-label=${told} title=${told}
    style=${{ background: `color-mix(in srgb, var(--c1) ${Math.round(55 * used)}%, var(--card))` }}>${number}</span>`;
}

function Process({ process }) {
  const { name, cores, cpu, busy, blocked } = process;
  const level = blocked > HIGH ? "high" : blocked > LOW ? "low" : "ok";
  return html`<li class="process ${level}">
    <small>cores ${cores || "–"}</small><b>${name}</b>
    <div class="use"><i class="busy" style=${{ width: percent(busy) }}></i><i class="blocked" style=${{ width: percent(blocked) }}></i></div>
    <span>busy ${percent(busy)}, CPU ${percent(cpu)}</span>
    ${level !== "ok" && html`<span>back-pressured ${percent(blocked)}</span>`}
  </li>`;
}

function Node({ node, isOpen }) {
  const processes = node.load?.processes ?? [];
  const cores = byCore(processes);
  return html`<details open=${isOpen}>
    <summary><b>${node.name}</b> <small>${node.host && node.host !== node.name ? `on ${node.host}, ` : ""}${counted(node.sockets.length, "socket")}</small></summary>
    <dl class="sockets">
      ${node.sockets.map((list, socket) => html`<dt>socket ${socket}</dt>
        <dd>${numbers(list).map((number) => html`<${Core} number=${number} at=${cores.get(number)} />`)}</dd>`)}
    </dl>
    <ol class="flow">
      ${Object.entries(STEPS).map(([kind, title]) => html`<li>
        <h4>${title}</h4>
        <ul>${processes.filter((each) => each.name.startsWith(kind)).map((each) => html`<${Process} key=${each.name} process=${each} />`)}</ul>
      </li>`)}
    </ol>
  </details>`;
}

/** The map of all nodes that tell their processes. */
export function Map({ nodes }) {
  const told = nodes.filter((node) => node.load?.processes?.length);
  if (!told.length) return null;
  return html`<section class="card map" aria-labelledby="map-title">
    <h2 id="map-title">Processes <small>who waits for whom</small></h2>
    <p class="key-of"><span><i class="busy"></i>busy</span><span><i class="blocked"></i>back-pressured: has work, and waits for the next</span>
      <span><i class="idle"></i>idle: waits for the one before</span></p>
    ${told.map((node) => html`<${Node} key=${node.name} node=${node} isOpen=${told.length <= FEW_NODES} />`)}
  </section>`;
}

// The slowest records of the last hour, each with the time that it spent in every stage.

import { html } from "./htm-preact.js";
import { clock, duration } from "./format.js";

// Stages of a receipt, in the words and colours of the chart of the stages.
const STAGES = {
  stream: ["in the stream", "--s1"],
  fill: ["batch filling", "--s2"],
  wait: ["waiting for a worker", "--s3"],
  run: ["in the worker", "--s5"],
  publish: ["waiting for the writer", "--s7"],
  write: ["writing to Redis", "--s8"],
};

function Stages({ stages, mostMs }) {
  const told = Object.entries(STAGES).filter(([name]) => stages[name] > 0).map(([name, [words, color]]) => [`${words} ${duration(stages[name] / 1000)}`, stages[name], color]);
  return html`<span class="stages" role="img" aria-label=${told.map(([words]) => words).join(", ")}>
    ${told.map(([words, ms, color]) => html`<i title=${words} style=${{ width: `${(100 * ms) / mostMs}%`, background: `var(${color})` }}></i>`)}</span>`;
}

/** The records and their receipts. */
export function Slow({ records }) {
  if (!records.length) return null;
  const mostMs = Math.max(...records.map((record) => record.took_ms));
  return html`<section class="card" id="slow" aria-labelledby="slow-title">
    <h2 id="slow-title">Slowest records <small>of the last hour</small></h2>
    <p class="key-of">${Object.values(STAGES).map(([words, color]) => html`<span><i style=${{ background: `var(${color})` }}></i>${words}</span>`)}</p>
    <div class="scroll" tabindex="0" role="group" aria-labelledby="slow-title"><table>
      <thead><tr><th>answered</th><th class="n">took</th><th>stages</th><th>uri</th><th>node</th><th class="n">worker</th><th class="n">batch</th><th class="n">deliveries</th></tr></thead>
      <tbody>${records.map((record) => html`<tr key=${record.entry}>
        <td>${clock(record.at_ms)}</td>
        <th scope="row" class="n">${duration(record.took_ms / 1000)}</th>
        <td><${Stages} stages=${record.stages} mostMs=${mostMs} /></td>
        <td class="uri" title=${record.uri}>${record.uri}</td><td>${record.node}</td><td class="n">${record.worker}</td><td class="n">${record.batch || "–"}</td><td class="n">${record.deliveries}</td>
      </tr>`)}</tbody>
    </table></div>
  </section>`;
}

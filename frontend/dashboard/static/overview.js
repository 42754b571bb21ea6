// What limits the job, its figures now and over the last hour, and its nodes.

import { html } from "./htm-preact.js";
import { Chart } from "./chart.js";
import { clock, counted, duration, number, percent } from "./format.js";

const CALM = ["none", "idle"];
const BAD = ["stalled", "memory"];

/** A text with what stands between backticks as code. */
const withCode = (text) => text.split("`").map((part, at) => (at % 2 ? html`<code>${part}</code>` : part));

/** The sentence that names the limit. It is read aloud when the limit changes, not with each new number in it. */
export function Sentence({ limit }) {
  if (!limit) return html`<p class="sentence">No node tells its load.</p>`;
  const level = BAD.includes(limit.code) ? "bad" : CALM.includes(limit.code) ? "calm" : "warn";
  return html`<p class="sentence ${level}" id="limit"><span>${withCode(limit.sentence)}</span><code>${limit.code}</code></p>
    <p class="unseen" role="status" key=${limit.code}>The limit is ${limit.code}.</p>`;
}

function Tile({ id, name, original, value, below }) {
  return html`<div class="card tile" id=${id}>
    <dt>${name}</dt>
    <dd><b>${value}</b><span>${below}</span>${original && html`<small title="name in the original product">${original}</small>`}</dd>
  </div>`;
}

/** The figures of this moment. */
export function Tiles({ job }) {
  const now = job.now;
  const total = job.totals.answered + job.totals.failed;
  return html`<dl class="tiles" aria-label="Figures of this moment">
    <${Tile} id="throughput" name="Throughput" original="Serving Throughput · numRecordsOutPerSecond"
      value=${number(now.records_s)} below="records a second" />
    <${Tile} id="total" name="Records answered" original="Total Records Number · numRecordsOut"
      value=${number(total)} below=${job.totals.failed ? `${number(job.totals.failed)} with an error` : "none with an error"} />
    <${Tile} id="latency" name="Latency" value=${duration(now.p50_s)} below=${`p99 ${duration(now.p99_s)}`} />
    <${Tile} id="backlog" name="Backlog" value=${number(now.backlog)} below=${`oldest ${duration(now.oldest_s)}`} />
    <${Tile} id="busy" name="Workers busy" value=${percent(now.busy)} below=${`batches ${now.fill ? percent(now.fill) : "–"} full`} />
    <${Tile} id="dead" name="Dead letters" value=${number(now.dead_letters)} below=${`${number(now.errors_s)} errors a second`} />
  </dl>`;
}

const RATES = [
  { label: "records/s", color: "--c1", value: (point) => point.records_s, shown: number, least: 1 },
  { label: "errors/s", color: "--bad", value: (point) => point.errors_s, shown: number },
];
const LATENCIES = [
  { label: "p50", color: "--c3", value: (point) => point.p50_s, shown: duration, least: 0.001 },
  { label: "p99", color: "--c2", value: (point) => point.p99_s, shown: duration },
];
const STAGES = Object.entries({
  stream: "in the stream",
  fill: "batch filling",
  wait: "waiting for a worker",
  decode: "decoding",
  model: "model",
  store: "storing outputs",
  publish: "waiting for the writer",
  write: "writing to Redis",
}).map(([stage, label], index) => ({
  label,
  color: `--s${index + 1}`,
  value: (point) => point.stages?.[stage] ?? 0, // points of the release before have none
  shown: duration,
  least: 0.001,
}));
const QUEUE = [
  { label: "backlog", color: "--c4", value: (point) => point.backlog, shown: number, least: 10 },
  { label: "oldest", color: "--c5", value: (point) => point.oldest_s, shown: duration, axis: "right", least: 0.01 },
];
const USE = [
  { label: "workers busy", color: "--c1", value: (point) => point.busy, shown: percent },
  { label: "batch fill", color: "--c3", value: (point) => point.fill, shown: percent },
];

/** The last hour. */
export function Charts({ points, marks, theme }) {
  const common = { points, marks, theme };
  return html`<div class="charts">
      <${Chart} title="Throughput" lines=${RATES} ...${common} />
      <${Chart} title="Latency" note="from the queue to the result" lines=${LATENCIES} ...${common} />
      <${Chart} title="Backlog" note="records, and age of the oldest" lines=${QUEUE} ...${common} />
      <${Chart} title="Use" lines=${USE} most=${1} ...${common} />
      <${Chart} title="Latency by stage" note="mean of a record, from the queue to the result" lines=${STAGES} stacked ...${common} />
    </div>
    ${marks.length > 0 && html`<ul class="marks" aria-label="Events of the last hour">
      ${marks.slice(-8).map((mark) => html`<li><i style=${{ background: `var(${mark.color})` }}></i><time>${clock(mark.atMs)}</time> ${mark.text}</li>`)}
    </ul>`}`;
}

function Bar({ share }) {
  const level = share >= 0.9 ? "hot" : share >= 0.5 ? "warm" : "cool";
  return html`<span class="bar ${level}"><i style=${{ width: percent(share) }}></i></span>`;
}

/** The nodes of the job, with the load of each. */
export function Nodes({ nodes }) {
  return html`<section class="card" id="nodes" aria-labelledby="nodes-title">
    <h2 id="nodes-title">Nodes <small>${counted(nodes.length, "node")}</small></h2>
    <div class="scroll" tabindex="0" role="group" aria-labelledby="nodes-title"><table>
      <thead><tr><th>node</th><th>state</th><th class="n">records/s</th><th class="n">p50</th><th class="n">p99</th><th>workers</th>
        <th>busy</th><th class="n">restarts</th><th class="n">up</th><th>release</th></tr></thead>
      <tbody>${nodes.map((node) => {
        const busy = node.load?.busy ?? [];
        const mean = busy.reduce((sum, share) => sum + share, 0) / (busy.length || 1);
        return html`<tr key=${node.name}>
          <th scope="row">${node.name}</th>
          <td><span class="state ${node.state}">${node.state}</span></td>
          <td class="n">${node.load ? number(node.load.records_s) : "–"}</td>
          <td class="n">${duration(node.load?.p50_s)}</td><td class="n">${duration(node.load?.p99_s)}</td>
          <td>${node.workers_alive} of ${node.workers}${node.threads ? ` × ${counted(node.threads, "thread")}` : ""}</td>
          <td><${Bar} share=${mean} /> ${percent(mean)}</td>
          <td class="n">${number(node.restarts)}</td><td class="n">${duration(node.uptime_s)}</td><td>${node.release}</td>
        </tr>`;
      })}</tbody>
    </table></div>
  </section>`;
}

/** The model that is served. */
export function Model({ model }) {
  const specs = (kind, all) => all.map((spec) => html`<tr><th scope="row">${kind}</th><td>${spec.name}</td><td>${spec.dtype}</td>
    <td>${spec.shape ? `[${spec.shape.map((size) => size ?? "N").join(", ")}]` : "any shape"}</td></tr>`);
  return html`<section class="card" aria-labelledby="model-title">
    <h2 id="model-title">Model <small>${model.path.split("/").at(-1)}</small></h2>
    <p class="facts">${[model.backend, model.engine !== "native" && model.engine, model.precision, `batches of ${model.batch_size}`, model.hash.slice(0, 19)]
      .filter(Boolean).map((fact) => html`<span>${fact}</span>`)}</p>
    <div class="scroll" tabindex="0" role="group" aria-labelledby="model-title"><table>
      <thead><tr><th></th><th>name</th><th>dtype</th><th>shape</th></tr></thead>
      <tbody>${specs("input", model.inputs)}${specs("output", model.outputs)}</tbody>
    </table></div>
  </section>`;
}

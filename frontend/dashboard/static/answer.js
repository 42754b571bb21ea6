// An answer of a model: classes and vectors as bars, other values by their shape and numbers.

import { html } from "./htm-preact.js";
import { number, percent } from "./format.js";

const TOP = 10;
const LONGEST = 20_000;

/** Whether a value is a list of `[index, score]` or `[index, score, name]`, as topN makes it. */
function isClasses(value) {
  return Array.isArray(value) && value.length > 0 && value.every((each) =>
    Array.isArray(each) && [2, 3].includes(each.length) && Number.isInteger(each[0]) && typeof each[1] === "number");
}

const isVector = (value) => Array.isArray(value) && value.length > 1 && value.every((each) => typeof each === "number");

/** Name and score of the highest entries. */
function ranked(value, isTopN) {
  const all = isTopN ? value.map(([index, score, name]) => [name ?? String(index), score]) : value.map((score, index) => [String(index), score]);
  return isTopN ? all : all.sort((one, other) => other[1] - one[1]).slice(0, TOP);
}

function Bars({ entries }) {
  const most = Math.max(...entries.map(([, score]) => Math.abs(score))) || 1;
  return html`<table class="bars"><thead class="unseen"><tr><th>class</th><th>value</th></tr></thead>
    <tbody>${entries.map(([name, score]) => html`<tr>
      <th scope="row">${name}</th>
      <td><span class="bar"><i style=${{ width: percent(Math.max(0, score) / most) }}></i></span>${Number(score.toPrecision(4))}</td>
    </tr>`)}</tbody></table>`;
}

function shapeOf(value) {
  return Array.isArray(value) ? [value.length, ...(value.length ? shapeOf(value[0]) : [])] : [];
}

function Numbers({ value }) {
  const flat = value.flat(Infinity);
  const known = flat.filter((each) => typeof each === "number");
  if (!known.length) return html`<p>${JSON.stringify(value).slice(0, LONGEST)}</p>`;
  const least = known.reduce((one, other) => Math.min(one, other));
  const most = known.reduce((one, other) => Math.max(one, other));
  const mean = known.reduce((sum, each) => sum + each, 0) / known.length;
  const facts = { shape: `[${shapeOf(value).join(", ")}]`, least, mean, most };
  return html`<dl>${Object.entries(facts).map(([name, fact]) => html`<div><dt>${name}</dt>
    <dd>${typeof fact === "number" ? Number(fact.toPrecision(5)) : fact}</dd></div>`)}</dl>`;
}

function Output({ name, value }) {
  const isTopN = isClasses(value);
  const flat = isVector(value?.[0]) && value.length === 1 ? value[0] : value; // a batch of one row
  let shown;
  if (isTopN || isVector(flat)) shown = html`<${Bars} entries=${ranked(isTopN ? value : flat, isTopN)} />`;
  else if (Array.isArray(value)) shown = html`<${Numbers} value=${value} />`;
  else shown = html`<p class="value">${typeof value === "number" ? Number(value.toPrecision(6)) : typeof value === "string" ? value : JSON.stringify(value)}</p>`;
  const rest = !isTopN && isVector(flat) && flat.length > TOP ? `the highest ${TOP} of ${number(flat.length)}` : "";
  return html`<h3>${name}<small>${rest}</small></h3>${shown}`;
}

/** The time of each stage in the header Server-Timing, for people. */
function stages(timing) {
  const words = { queue: "in the queue", wait: "for a worker", run: "in the model" };
  return [...(timing ?? "").matchAll(/(\w+);dur=([\d.]+)/g)].filter(([, name]) => words[name])
    .map(([, name, ms]) => `${Number(ms).toFixed(1)} ms ${words[name]}`).join(", ");
}

/** The answer, with its time. */
export function Answer({ value, outputs, tookMs, timing }) {
  const isByName = value !== null && typeof value === "object" && !Array.isArray(value);
  const entries = isByName ? Object.entries(value) : [[outputs.length === 1 && !isClasses(value) ? outputs[0].name : "answer", value]];
  return html`<p class="took">Answered in ${tookMs.toFixed(1)} ms<small>${stages(timing)}</small></p>
    ${entries.map(([name, each]) => html`<${Output} name=${name} value=${each} />`)}
    <details class="snippet"><summary>JSON</summary><pre tabindex="0" aria-label="JSON">${JSON.stringify(value).slice(0, LONGEST)}</pre></details>`;
}

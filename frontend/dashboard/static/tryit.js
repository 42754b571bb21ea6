// Try it: the inputs of the model as a form, its answer, and the same call as curl and Python.

import { html, useState } from "./htm-preact.js";
import { call, hasKey } from "./api.js";
import { Answer } from "./answer.js";
import { curl, python } from "./snippets.js";

const FREE = 8; // size of a free dimension in an example
const MOST = 4096; // numbers of an example
const CHANNELS = [1, 3, 4];

/** The shape of one record of an input, with sizes for its free dimensions. */
function rowShape({ shape, batch_axis: axis = 0 }) {
  const row = axis === null ? shape : shape?.filter((_, at) => at !== axis);
  return row?.map((size) => size ?? FREE);
}

const isNumeric = (spec) => /^(u?int|float|bool)/.test(spec.dtype);

/** Whether an image is a likely value: three dimensions beside the batch, one of them channels, or an unknown shape of floats. */
function takesImage(spec) {
  const row = rowShape(spec);
  if (!row) return spec.dtype.startsWith("float");
  return isNumeric(spec) && row.length === 3 && (CHANNELS.includes(row[0]) || CHANNELS.includes(row[2]));
}

const isPlainText = (spec) => spec.dtype === "str" && !rowShape(spec)?.length;

/** An example of a value as it is typed. Empty: too long, or of a kind that cannot be guessed. */
function example(spec) {
  if (isPlainText(spec)) return "text";
  if (!isNumeric(spec) && spec.dtype !== "str") return "";
  const shape = rowShape(spec) ?? [FREE];
  if (shape.reduce((product, size) => product * size, 1) > MOST) return "";
  const one = spec.dtype === "str" ? "text" : spec.dtype === "bool" ? true : spec.dtype.startsWith("float") ? 0.5 : 1;
  return JSON.stringify(shape.reduceRight((inner, size) => Array(size).fill(inner), one));
}

async function base64(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  return btoa(text);
}

/** The JSON of a value: {json}, and for a file {file, json with the content}. */
async function valueOf(spec, given) {
  if (given.file) return { name: spec.name, file: given.file.name, json: JSON.stringify({ b64: await base64(given.file) }) };
  if (isPlainText(spec)) return { name: spec.name, json: JSON.stringify(given.text) };
  if (!given.text.trim()) throw new Error(`${spec.name} is empty: paste JSON${takesImage(spec) ? ", or choose an image" : ""}`);
  try {
    JSON.parse(given.text);
  } catch (error) {
    throw new Error(`${spec.name} is not JSON: ${error.message}`);
  }
  return { name: spec.name, json: given.text.trim() };
}

/** Ctrl+Enter sends the form of a text area, as Enter does elsewhere. */
function sendByKey(event) {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.target.form.requestSubmit();
}

function Input({ spec, given, onGive }) {
  const [isOver, setOver] = useState(false);
  const [preview, setPreview] = useState(null);
  const id = `input-${spec.name}`;
  const take = async (file) => {
    if (!file) return;
    if (preview) URL.revokeObjectURL(preview);
    const isImage = file.type.startsWith("image/");
    setPreview(isImage ? URL.createObjectURL(file) : null);
    onGive(isImage ? { file, text: given.text } : { text: await file.text() });
  };
  const drop = (event) => {
    event.preventDefault();
    setOver(false);
    take(event.dataTransfer.files[0]);
  };
  const over = (event) => (event.preventDefault(), setOver(true));
  const shape = spec.shape ? `[${spec.shape.map((size) => size ?? "N").join(", ")}]` : "any shape";
  return html`<div class="input ${isOver ? "over" : ""}" onDragOver=${over} onDragLeave=${() => setOver(false)} onDrop=${drop}>
    <label for=${id}>${spec.name} <small>${spec.dtype} ${shape}</small></label>
    ${given.file
      ? html`<div class="file"><img src=${preview} alt="" /><span>${given.file.name}</span>
          <button type="button" onClick=${() => onGive({ text: given.text })}>Remove</button></div>`
      : html`<textarea id=${id} rows="3" spellcheck="false" value=${given.text} placeholder=${isPlainText(spec) ? "text" : "JSON"}
          onInput=${(event) => onGive({ text: event.target.value })} onKeyDown=${sendByKey}></textarea>`}
    ${takesImage(spec) && !given.file && html`<label class="pick">Choose an image, or drop it here
      <input type="file" accept="image/*" onChange=${(event) => take(event.target.files[0])} /></label>`}
  </div>`;
}

function Snippet({ title, text }) {
  const [isCopied, setCopied] = useState(false);
  const copy = () => navigator.clipboard.writeText(text).then(() => setCopied(true));
  return html`<details class="snippet"><summary>${title}</summary>
    <pre tabindex="0" aria-label=${title}>${text}</pre>
    ${navigator.clipboard && html`<button type="button" onClick=${copy}>${isCopied ? "Copied" : "Copy"}</button>`}
  </details>`;
}

/** The form of a model. */
export function Try({ name, model }) {
  const specs = model.inputs.length ? model.inputs : [{ name: "x", dtype: "float32", shape: null }];
  const [given, setGiven] = useState(() => Object.fromEntries(specs.map((spec) => [spec.name, { text: example(spec) }])));
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState("");
  const [isBusy, setBusy] = useState(false);
  const path = `v1/models/${encodeURIComponent(name)}:predict`;
  const about = { url: new URL(path, location.href).href, isWhole: model.whole, needsKey: hasKey() };
  const shown = specs.map((spec) => {
    const { file, text } = given[spec.name];
    if (file) return { name: spec.name, file: file.name };
    if (isPlainText(spec)) return { name: spec.name, json: JSON.stringify(text) };
    return !text.trim() && takesImage(spec) ? { name: spec.name, file: "image.jpg" } : { name: spec.name, json: text.trim() };
  });
  const isComplete = shown.every(({ file, json }) => file || json);

  const send = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError("");
    try {
      const values = await Promise.all(specs.map((spec) => valueOf(spec, given[spec.name])));
      const record = `{${values.map((value) => `${JSON.stringify(value.name)}: ${value.json}`).join(", ")}}`;
      const begunMs = performance.now();
      const response = await call(path, { method: "POST", body: model.whole ? `{"inputs": ${record}}` : `{"instances": [${record}]}` });
      const found = await response.json();
      if (!response.ok) throw new Error(found.error);
      setAnswer({ value: found.outputs ?? found.predictions[0], tookMs: performance.now() - begunMs, timing: response.headers.get("Server-Timing") });
    } catch (trouble) {
      setAnswer(null);
      setError(trouble.message);
    }
    setBusy(false);
  };

  return html`<section class="card try" id="try" aria-labelledby="try-title">
    <h2 id="try-title">Try it <small>${model.raw ? "preprocess takes records of its own" : "one record"}</small></h2>
    <div class="sides">
      <form onSubmit=${send}>
        ${specs.map((spec) => html`<${Input} key=${spec.name} spec=${spec} given=${given[spec.name]}
          onGive=${(value) => setGiven((before) => ({ ...before, [spec.name]: value }))} />`)}
        <button class="main" disabled=${isBusy} title="Ctrl+Enter in a text does the same">Predict</button>
      </form>
      <div class="answer" aria-live="polite">
        ${error && html`<p class="trouble">${error}</p>`}
        ${answer ? html`<${Answer} ...${answer} outputs=${model.outputs} />` : !error && html`<p class="empty">The answer comes here.</p>`}
      </div>
      ${isComplete && html`<div class="calls">
        <${Snippet} title="curl" text=${curl(about, shown)} />
        <${Snippet} title="Python" text=${python(about, shown)} />
      </div>`}
    </div>
  </section>`;
}

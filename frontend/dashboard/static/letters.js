// Dead letters of the job: why each record died, and buttons that put it back or delete it.

import { html, useEffect, useState } from "./htm-preact.js";
import { ask } from "./api.js";
import { ago, counted, number } from "./format.js";

const PATH = "dashboard/dead-letters";

const post = (what, model, ids) => ask(`${PATH}/${what}`, {
  method: "POST",
  headers: { "Content-Type": "application/json", "X-Cluster-Serving": "dashboard" },
  body: JSON.stringify({ model, ids }),
});

function Letter({ letter, nowMs, onReplay, onDelete }) {
  const [isSure, setSure] = useState(false);
  const facts = { uri: letter.uri, node: letter.node, model: letter.model, entry: letter.entry, deliveries: letter.deliveries };
  return html`<details class="letter">
    <summary><code>${letter.code}</code> <span>${letter.message || "no message"}</span>
      <small>${letter.died_ms ? ago((nowMs - letter.died_ms) / 1000) : letter.id}</small></summary>
    <dl>${Object.entries(facts).map(([name, fact]) => html`<div><dt>${name}</dt><dd>${fact || "–"}</dd></div>`)}
      <div><dt>fields</dt><dd>${letter.fields.map((field) => `${field.name} ${number(field.bytes)} B`).join(", ") || "–"}</dd></div></dl>
    ${letter.traceback && html`<pre tabindex="0" aria-label="traceback">${letter.traceback}</pre>`}
    ${letter.cut_bytes > 0 && html`<p>Of the ${number(letter.cut_bytes)} bytes of the record only the first are kept: it cannot be replayed.</p>`}
    <p class="actions">
      <button disabled=${letter.cut_bytes > 0} onClick=${onReplay}>Replay</button>
      <button class=${isSure ? "danger" : ""} onBlur=${() => setSure(false)} onClick=${() => (isSure ? onDelete() : setSure(true))}>
        ${isSure ? "Delete for ever" : "Delete"}</button>
    </p>
  </details>`;
}

/** The newest letters, with the older ones that are shown behind them. */
function merged(before, now) {
  const at = before.letters.findIndex((letter) => letter.id === now.letters.at(-1)?.id);
  const older = at >= 0 && now.letters.length < now.total ? before.letters.slice(at + 1) : [];
  return { total: now.total, letters: [...now.letters, ...older] };
}

/** The dead letters of a model, looked at again when their number changes, and every ten seconds while there are some. */
export function Letters({ model, count, nowMs }) {
  const [found, setFound] = useState({ total: 0, letters: [] });
  const [said, setSaid] = useState("");
  const [looks, setLooks] = useState(0);
  const tick = count ? Math.floor(nowMs / 10_000) : 0;
  const path = (before) => `${PATH}?${new URLSearchParams({ model, ...(before && { before }) })}`;
  useEffect(() => {
    let isLatest = true;
    ask(path()).then((now) => isLatest && setFound((before) => merged(before, now)), (error) => isLatest && setSaid(error.message));
    return () => (isLatest = false);
  }, [model, count, looks, tick]);
  const act = (what, ids, done) =>
    post(what, model, ids)
      .then((answer) => {
        const gone = ids.filter((id) => !answer.left?.includes(id));
        setFound(({ total, letters }) => ({ total: total - gone.length, letters: letters.filter(({ id }) => !gone.includes(id)) }));
        setSaid(done(answer));
      }, (error) => setSaid(error.message))
      .then(() => setLooks((before) => before + 1));
  const replay = (ids) => act("replay", ids, ({ done, left }) =>
    `${counted(done, "record")} put back into the queue${left.length ? `, ${left.length} no longer there or cut` : ""}.`);
  const whole = found.letters.filter((letter) => !letter.cut_bytes).map((letter) => letter.id);
  const more = () => ask(path(found.letters.at(-1).id)).then(
    (older) => setFound({ total: older.total, letters: [...found.letters, ...older.letters] }), (error) => setSaid(error.message));
  return html`<section class="card" id="letters" aria-labelledby="letters-title">
    <h2 id="letters-title">Dead letters <small>${found.total ? `${number(found.total)}, the newest first` : "no record was given up"}</small></h2>
    <p class="said" role="status">${said}</p>
    ${found.letters.map((letter) => html`<${Letter} key=${letter.id} letter=${letter} nowMs=${nowMs}
      onReplay=${() => replay([letter.id])}
      onDelete=${() => act("delete", [letter.id], ({ done }) => `${counted(done, "dead letter")} deleted.`)} />`)}
    ${(whole.length > 1 || found.letters.length < found.total) && html`<p class="actions">
      ${whole.length > 1 && html`<button onClick=${() => replay(whole)}>Replay all ${whole.length} shown</button>`}
      ${found.letters.length < found.total && html`<button onClick=${more}>Older</button>`}
    </p>`}
  </section>`;
}
